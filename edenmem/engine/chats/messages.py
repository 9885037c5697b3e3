"""Messages of chat requests (OpenAI's form) as they are stored, and what of a request is new.

Pure. A request carries the conversation again and again, whole or cut, and is never trusted to be
well-formed: what cannot be read is left out here, and refused by the upstream if it must be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Literal

import msgspec

from edenmem.models.host import Message, ToolCall, literal
from edenmem.models.ids import derived_id
from edenmem.text import clean

#: A longer text is cut: what a store takes as one message has a limit.
MOST_CHARACTERS = 1_000_000

#: Above so many comparisons an edited history is taken to be known, but for its last turn.
_MOST_COMPARISONS = 4_000_000

#: So many ways to join a request to what is stored are compared by their answers.
_MOST_OVERLAPS = 100

#: At the end of an answer that did not arrive whole.
CUT_OFF = "[answer cut off"

_ROLES: dict[str, Literal["user", "assistant", "tool"]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a request, but for instructions (system, developer), which are not stored.

    ``key`` is equal for messages that say the same.
    """

    role: Literal["user", "assistant", "tool"]
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def key(self) -> str:
        """What tells the message from others."""
        return key_of(self.role, self.content)


def key_of(role: str, content: str) -> str:
    """Return what tells a message that no agent wrote from others."""
    return derived_id("said", role, content)


def read_messages(given: Sequence[Any]) -> list[Said]:
    """Return what was said in a request, in order."""
    return [said for each in given if (said := read_message(each)) is not None]


def read_message(given: Any) -> Said | None:
    """Return one message of a request; None for instructions and for what is none."""
    if not isinstance(given, Mapping):
        return None
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


def read_content(content: Any) -> str:
    """Return a content as text; of a picture or a sound its kind and a short digest."""
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
    """Return the calls of tools in an assistant's message."""
    given = message.get("tool_calls")
    calls = given if isinstance(given, list) else []
    if isinstance(message.get("function_call"), Mapping):  # the form before tools
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
    """Return a call in the form of the host; arguments are JSON in a string, mostly."""
    try:
        args = json.loads(arguments) if isinstance(arguments, str) and arguments else arguments
        plain = msgspec.json.decode(msgspec.json.encode(_clean(args)))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        plain = clean(str(arguments))[:MOST_CHARACTERS]
    return ToolCall(tool=clean(name)[:200], args=literal(plain), id=clean(id)[:200])


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return str(value)  # larger than any store's integers
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): _clean(item) for name, item in value.items()}
    return value


def chain(keys: Sequence[str]) -> list[str]:
    """Return a rolling hash: for each key one that stands for it and all before it."""
    hashes: list[str] = []
    for key in keys:
        hashes.append(derived_id("chain", hashes[-1] if hashes else "", key))
    return hashes


def find_news(
    stored: Sequence[Message], given: Sequence[Said], *, is_retry: bool = False
) -> list[int]:
    """Return the places of the messages of ``given`` that ``stored`` does not have.

    Args:
        stored: The newest messages of the session, in order.
        given: The messages of a request: the whole conversation, its end, or only what is new.
        is_retry: The client says that it sends this request again.

    A request that ends as the session does asks for the last answer again, and brings nothing new.
    The one exception is a client that sends only its newest message each time, and says the same
    twice ("yes"): once the first one has its whole answer, the second is new.
    """
    asked = [message for message in stored if message.role in ("user", "tool")]
    old = [key_of(message.role, message.content) for message in asked]
    places = [place for place, said in enumerate(given) if said.role != "assistant"]
    keys = [given[place].key for place in places]
    overlap = _overlap(old, keys, _answers(stored), _answers(given))
    alone = len(given) == 1 and len(old) > 1
    if overlap == len(keys):
        repeated = alone and not is_retry and _is_answered(stored)
        return places[-1:] if repeated else []
    if not overlap:
        turn = _current_turn(given, places)
        if len(turn) < len(places) and old[-len(turn) :] == keys[-len(turn) :]:
            return []
        known = _common(old, keys[: len(keys) - len(turn)])
        new = [place for index, place in enumerate(places) if index not in known]
    else:
        new = places[overlap:]
    is_answered = bool(stored) and stored[-1].role == "assistant"
    return with_answers(given, new, is_answered=is_answered)


def _common(old: Sequence[str], history: Sequence[str]) -> set[int]:
    """Return the places of ``history`` that ``old`` has, in the same order."""
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
    """Return how many of the last of ``old`` are the first of ``new``.

    Where words repeat, several numbers fit: the largest counts for which the client has the same
    answers too, or else, since a client may change answers, the largest.
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
    """Return the text that answers each message, "" where there is none."""
    answers: list[str] = []
    for message in messages:
        if message.role in ("user", "tool"):
            answers.append("")
        elif message.role == "assistant" and answers:
            answers[-1] += message.content.partition(f"\n\n{CUT_OFF}")[0].strip()
    return answers


def _current_turn(given: Sequence[Said], places: Sequence[int]) -> list[int]:
    """Return the places after the last answer: what is said now."""
    answers = [place for place, said in enumerate(given) if said.role == "assistant"]
    last = answers[-1] if answers else -1
    return [place for place in places if place > last] or list(places[-1:])


def _is_answered(stored: Sequence[Message]) -> bool:
    last = stored[-1]
    return last.role == "assistant" and CUT_OFF not in last.content[-200:]


def with_answers(given: Sequence[Said], new: Sequence[int], *, is_answered: bool) -> list[int]:
    """Return new places, with those of the answers between them.

    Args:
        given: The messages of a request.
        new: The places of those that are new, answers left out.
        is_answered: Whether the message before the first new one has its answer elsewhere. If not,
            as after a kill, the client's copy of it is new too.
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
