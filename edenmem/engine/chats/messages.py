"""Messages of chat requests in OpenAI's format, and the new messages of a request.

Pure functions. Every request repeats the conversation, complete or in part, and may be invalid:
invalid messages are ignored here, and the upstream refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice, takewhile
from typing import Any, Literal

import msgspec

from edenmem.engine.sessions.format import BadLine, clean_value
from edenmem.models.host import Message, ToolCall, literal
from edenmem.models.ids import derived_id
from edenmem.text import clean

#: Maximum length of a message; longer texts are cut, because stores limit the size.
MOST_CHARACTERS = 1_000_000

#: Maximum number of comparisons; in longer edited histories only the last turn is new.
_MOST_COMPARISONS = 4_000_000

#: Maximum number of overlaps between a request and the stored messages to compare.
_MOST_OVERLAPS = 100

#: Least consecutive messages, and their characters, by which a session is recognized.
_LEAST_RUN, _LEAST_LENGTH = 3, 80

#: Mark at the end of an incomplete answer.
CUT_OFF = "[answer cut off"

_ROLES: dict[str, Literal["user", "assistant", "tool"]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


#: Items of the Responses API that are no messages.
_ITEMS = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a request, without instructions (system, developer), which are not stored.

    Messages with the same text have the same ``key``.
    """

    role: Literal["user", "assistant", "tool"]
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def key(self) -> str:
        """Return the key of the message."""
        return key_of(self.role, self.content)


def key_of(role: str, content: str) -> str:
    """Return the key of a message that no agent wrote."""
    return derived_id("said", role, content)


def read_messages(given: Sequence[Any]) -> list[Said]:
    """Return the messages of a request, in order."""
    return [said for each in given if (said := read_message(each)) is not None]


def read_message(given: Any) -> Said | None:
    """Return a message of a request, or None for instructions and invalid messages."""
    if not isinstance(given, Mapping):
        return None
    if given.get("type") in _ITEMS:
        return _read_item(given)
    role = _ROLES.get(str(given.get("role")))
    if role is None:
        return None
    content = read_content(given.get("content"))
    if role == "assistant" and not content:
        content = read_content(given.get("refusal"))
    calls = read_tool_calls(given) if role == "assistant" else ()
    name = given.get("name")
    if not content and not calls and role != "user":
        return None
    return Said(
        role=role,
        content=content,
        name=clean(name).strip()[:200] or None if isinstance(name, str) else None,
        tool_calls=calls,
    )


def _read_item(item: Mapping[str, Any]) -> Said | None:
    """Return a call of a tool, or its result, in the format of the Responses API."""
    if str(item["type"]).endswith("_output"):
        return Said(role="tool", content=read_content(item.get("output")))
    calls = read_tool_calls({"tool_calls": [{"id": item.get("call_id"), "function": item}]})
    return Said(role="assistant", content="", tool_calls=calls) if calls else None


def read_content(content: Any) -> str:
    """Return a content as text; images and sounds become their type and a short digest."""
    if isinstance(content, str):
        text = content
    elif isinstance(content, list):
        text = "\n".join(filter(None, map(_read_part, content)))
    else:
        return ""
    text = clean(text)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " […]"


def _read_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return str(part[name])
    kind = str(part.get("type", "part")).removesuffix("_url").removeprefix("input_")
    rest = {name: value for name, value in part.items() if name != "type"}
    return f"[{clean(kind)[:40]} {derived_id(json.dumps(rest, sort_keys=True))[:8]}]"


def read_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the tool calls in a message of an assistant."""
    given = message.get("tool_calls")
    calls = given if isinstance(given, list) else []
    if isinstance(message.get("function_call"), Mapping):  # the format before tools
        calls = [*calls, {"function": message["function_call"]}]
    found: list[ToolCall] = []
    for call in calls:
        function = call.get("function", call.get("custom")) if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            arguments = function.get("arguments", function.get("input"))
            call_id = call.get("id")
            found.append(
                tool_call(
                    function["name"], arguments, id=call_id if isinstance(call_id, str) else ""
                )
            )
    return tuple(found)


def tool_call(name: str, arguments: Any, *, id: str = "") -> ToolCall:
    """Return a call in the format of the host; arguments are usually JSON in a string."""
    try:
        args = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments
        plain = msgspec.json.decode(msgspec.json.encode(clean_value(args, "args")))
    except (BadLine, ValueError, RecursionError, msgspec.MsgspecError):
        plain = clean(str(arguments))[:MOST_CHARACTERS]
    return ToolCall(tool=clean(name)[:200], args=literal(plain), id=clean(id)[:200])


def chain(keys: Sequence[str]) -> list[str]:
    """Return rolling hashes: for each key, the hash of all keys up to it."""
    hashes: list[str] = []
    for key in keys:
        hashes.append(derived_id("chain", hashes[-1] if hashes else "", key))
    return hashes


def find_news(
    stored: Sequence[Message], given: Sequence[Said], *, is_retry: bool = False
) -> list[int]:
    """Return the indexes of the messages of a request that are not stored.

    Args:
        stored: The newest messages of the session, in order.
        given: The messages of a request: the complete conversation, its end, or new messages only.
        is_retry: Whether the client marks the request as a retry.

    A request that ends with the last stored message asks for its answer again, and has no new
    messages. The exception is a client that sends only new messages, and repeats one ("yes"): it
    is new if the first one has a complete answer, and is not the first message of the session.
    """
    asked = [message for message in stored if message.role in ("user", "tool")]
    old = [key_of(message.role, message.content) for message in asked]
    places = [place for place, said in enumerate(given) if said.role != "assistant"]
    keys = [given[place].key for place in places]
    overlap = _overlap(old, keys, _answers(stored), _answers(given))
    alone = len(given) == 1 and len(old) > 1
    if overlap == len(keys):
        last = stored[-1] if alone and not is_retry else None
        is_answered = last is not None and last.role == "assistant"
        is_whole = last is not None and CUT_OFF not in last.content[-200:]
        return places[-1:] if is_answered and is_whole else []
    if not overlap:
        turn = current_turn(given, places)
        if len(turn) < len(places) and old[-len(turn) :] == keys[-len(turn) :]:
            return []
        known = _common(old, keys[: len(keys) - len(turn)])
        new = [place for index, place in enumerate(places) if index not in known]
    else:
        new = places[overlap:]
    is_answered = bool(stored) and stored[-1].role == "assistant"
    return with_answers(given, new, is_answered=is_answered)


def _common(old: Sequence[str], history: Sequence[str]) -> set[int]:
    """Return the indexes of the messages of ``history`` that ``old`` has in the same order."""
    if len(old) * len(history) > _MOST_COMPARISONS:
        return set(range(len(history)))
    matcher = SequenceMatcher(None, old, history, autojunk=False)
    blocks = matcher.get_matching_blocks()
    return {place for block in blocks for place in range(block.b, block.b + block.size)}


def _overlap(
    old: Sequence[str],
    new: Sequence[str],
    old_answers: Sequence[str],
    new_answers: Sequence[str],
) -> int:
    """Return the length of the longest end of ``old`` that ``new`` begins with.

    If texts repeat, several lengths match: prefer the longest with the same answers, then the
    longest, because a client may change answers.
    """
    sizes = (n for n in range(min(len(old), len(new)), 0, -1) if old[-n:] == new[:n])
    fitting = list(islice(sizes, _MOST_OVERLAPS if any(new_answers) else 1))
    for size in fitting:
        pairs = zip(old_answers[-size:], new_answers[:size], strict=True)
        known = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
        if known and all(mine == theirs for mine, theirs in known):
            return size
    return fitting[0] if fitting else 0


def _answers(messages: Sequence[Message | Said]) -> list[str]:
    """Return the answer to each message, or ""."""
    answers: list[str] = []
    for message in messages:
        if message.role in ("user", "tool"):
            answers.append("")
        elif message.role == "assistant" and answers:
            answers[-1] += message.content.partition(f"\n\n{CUT_OFF}")[0].strip()
    return answers


def shared_run(stored: Sequence[Message], given: Sequence[Said]) -> bool:
    """Return whether a request begins with enough consecutive messages of a session.

    Enough are three, one of them an answer, with 80 characters together.
    """
    old = [(message.role, message.content.strip()) for message in stored]
    new = [(said.role, said.content.strip()) for said in given]
    for start in range(len(old)):
        run = list(takewhile(lambda pair: pair[0] == pair[1], zip(old[start:], new, strict=False)))
        is_long = len(run) >= _LEAST_RUN and sum(len(said[1]) for said, _ in run) >= _LEAST_LENGTH
        if is_long and any(said[0] == "assistant" for said, _ in run):
            return True
    return False


def current_turn(given: Sequence[Said], places: Sequence[int]) -> list[int]:
    """Return the indexes, of these without answers, of the messages after the last answer."""
    answers = [place for place, said in enumerate(given) if said.role == "assistant"]
    last = answers[-1] if answers else -1
    return [place for place in places if place > last] or list(places[-1:])


def with_answers(given: Sequence[Said], new: Sequence[int], *, is_answered: bool) -> list[int]:
    """Return the indexes of new messages, with the answers between them.

    Args:
        given: The messages of a request.
        new: The indexes of new messages, without answers.
        is_answered: Whether the answer to the message before the first new one is stored. If not,
            as after a kill, the client's copy of the answer is new, too.
    """
    if not new:
        return []
    places, later, first = list(new), set(new), new[0]
    asked = [place for place in range(first) if given[place].role != "assistant"]
    last_before = asked[-1] if asked else None
    before: int | None = None  # the message that an answer replies to
    for place, said in enumerate(given[: new[-1]]):
        if said.role != "assistant":
            before = place
        elif before in later or (not is_answered and place < first and before == last_before):
            places.append(place)
    return sorted(places)
