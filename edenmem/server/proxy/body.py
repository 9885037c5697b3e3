"""The body of a request: parsed for memory, and otherwise forwarded unchanged."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from edenmem.engine.chats.messages import read_content, read_messages
from edenmem.invalid import explain_value

_NAMES = ("memory_id", "memory_top_k", "memory_recency_weight", "memory_score_threshold")
_INSTRUCTIONS = ("system", "developer")

#: Estimated tokens of an answer without a limit of its own, and the most that are estimated.
USUAL_ANSWER, _MOST_ANSWER = 1000, 1_000_000
#: Fields with the maximum number of tokens of an answer, the first one first.
_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
#: Maximum number of messages in a request.
MOST_MESSAGES = 10_000

_Fields = dict[str, msgspec.Raw]


class BadField(Exception):
    """A ``memory_*`` field of a request has an invalid value, or there are too many messages."""


class MemoryFields(msgspec.Struct, frozen=True, kw_only=True):
    """The ``memory_*`` fields of a request, which are not forwarded."""

    memory_id: Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")] | None = None
    memory_top_k: int | None = None
    memory_recency_weight: Annotated[float, Meta(ge=0, le=1)] | None = None
    memory_score_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None


class ChatBody:
    """A request for a chat completion.

    Args:
        data: The body.

    Raises:
        ValueError: the body is not of this kind; the upstream reports the error.
        BadField: a ``memory_*`` field is invalid, or there are too many messages.

    Attributes:
        said: The messages without instructions.
        instructions: The first instructions.
        last_user_message: The text of the last user message.
        memory: The ``memory_*`` fields.
        user: The name of the user, or "".
        previous: ID of the response that this one follows, or "".
        conversation: ID of the conversation at the upstream, or "".
    """

    #: Path below the upstream's URL.
    path: ClassVar = "/chat/completions"

    previous = conversation = ""

    def __init__(self, data: bytes) -> None:
        try:
            self._fields = _fields_of(data)
            self._messages = self._load()
        except (msgspec.MsgspecError, KeyError, RecursionError, ValueError) as error:
            raise ValueError("not a chat request") from error
        if len(self._messages) > MOST_MESSAGES:
            raise BadField(f"messages must have at most {MOST_MESSAGES} values")
        self._parsed = [_plain(each) for each in self._messages]
        try:
            self.said = tuple(read_messages(self._parsed))
            self.instructions = self._read_instructions()
            place = self._last_user_place()
            self.last_user_message = (
                "" if place is None else read_content(self._parsed[place].get("content"))
            )
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        self.memory = _memory_fields(self._fields)
        metadata = self._plain_field("metadata")
        named = [self._plain_field(name) for name in ("user", "safety_identifier")]
        named.append(metadata.get("user_id") if isinstance(metadata, dict) else None)
        self.user = next((each for each in named if each and isinstance(each, str)), "")

    @property
    def most_answer_tokens(self) -> int:
        """Return the maximum number of tokens in all answers together, or the usual number."""
        given = [self._plain_field(name) for name in (*_LIMITS, "n")]
        *limits, answers = (each if isinstance(each, int) and each > 0 else 0 for each in given)
        most = next(filter(None, limits), USUAL_ANSWER)
        return min(most * max(1, answers), _MOST_ANSWER)

    def _load(self) -> list[msgspec.Raw]:
        """Return the messages as raw JSON."""
        return _items_of(self._fields["messages"])

    def _with_context(self, messages: list[msgspec.Raw], context: str) -> None:
        """Add the context to the instructions."""
        if self._parsed and _instructs(self._parsed[0]):
            messages[0] = _with_text(messages[0], context, first=False)
        else:
            messages.insert(0, _raw({"role": "system", "content": context}))
        self._keep(messages)

    def _read_instructions(self) -> str:
        first = self._parsed[0] if self._parsed else None
        return read_content(first.get("content")) if first and _instructs(first) else ""

    def with_memory(self, context: str, facts: str) -> bytes:
        """Return the body with memory, and without ``memory_*`` fields.

        The context goes to the end of the first instructions, so that their text stays the same
        in all requests. Facts go before the text of the last user message.
        """
        messages = list(self._messages)
        self._fields = {name: raw for name, raw in self._fields.items() if name not in _NAMES}
        if facts and (place := self._last_user_place()) is not None:
            messages[place] = _with_text(messages[place], facts, first=True)
            self._keep(messages)
        if context:
            self._with_context(messages, context)
        return bytes(_object(self._fields))

    def _keep(self, messages: list[msgspec.Raw]) -> None:
        """Replace the messages of the request."""
        self._fields["messages"] = _raw(messages)

    def _plain_field(self, name: str) -> Any:
        return _plain(self._fields[name]) if name in self._fields else None

    def _last_user_place(self) -> int | None:
        for place in range(len(self._parsed) - 1, -1, -1):
            message = self._parsed[place]
            if isinstance(message, dict) and message.get("role") == "user":
                return place
        return None


class ResponsesBody(ChatBody):
    """A request for a response; its input is a text, or a list of items."""

    path = "/responses"

    def _load(self) -> list[msgspec.Raw]:
        previous = self._plain_field("previous_response_id")
        self.previous = previous if isinstance(previous, str) else ""
        talk = self._plain_field("conversation")
        talk = talk.get("id") if isinstance(talk, dict) else talk
        self.conversation = talk if isinstance(talk, str) else ""
        text = _plain(self._fields["input"])
        self._is_text = isinstance(text, str)
        if self._is_text:
            return [_rewritten({"role": "user", "content": text})]
        return _items_of(self._fields["input"])

    def _keep(self, messages: list[msgspec.Raw]) -> None:
        # A text stays a text: not every upstream takes a list.
        self._fields["input"] = (
            _fields_of(messages[0])["content"] if self._is_text else _raw(messages)
        )

    def _with_context(self, messages: list[msgspec.Raw], context: str) -> None:
        given = self._plain_field("instructions")
        whole = f"{given}\n\n{context}" if isinstance(given, str) and given else context
        self._fields["instructions"] = _rewritten(whole)

    def _read_instructions(self) -> str:
        given = self._plain_field("instructions")
        return given if isinstance(given, str) else super()._read_instructions()


def _instructs(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in _INSTRUCTIONS


def _fields_of(data: bytes | msgspec.Raw) -> _Fields:
    """Return the fields of an object as raw JSON.

    Raises:
        ValueError: the data is not a JSON object.
    """
    try:
        return msgspec.json.decode(data, type=_Fields)
    except msgspec.DecodeError:
        value = _surrogates(data)
        if not isinstance(value, dict):
            raise ValueError("not an object") from None
        return {name: _rewritten(item) for name, item in value.items()}


def _items_of(data: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a list as raw JSON.

    Raises:
        ValueError: the data is not a JSON list.
    """
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except msgspec.DecodeError:
        value = _surrogates(data)
        if not isinstance(value, list):
            raise ValueError("not a list") from None
        return [_rewritten(item) for item in value]


def _surrogates(data: bytes | msgspec.Raw) -> Any:
    """Parse JSON with lone surrogates, as in truncated texts, which msgspec rejects."""
    return json.loads(bytes(data).decode("utf-8", "surrogatepass"))


def _rewritten(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value, allow_nan=False).encode())


def _memory_fields(fields: _Fields) -> MemoryFields:
    given = {name: _plain(fields[name]) for name in _NAMES if name in fields}
    if isinstance(name := given.get("memory_id"), str):  # no store holds half of an emoji
        given["memory_id"] = name.encode("utf-8", "ignore").decode()
    try:
        return msgspec.convert(given, MemoryFields)
    except msgspec.ValidationError as error:
        raise BadField(explain_value(error)) from error


def _plain(raw: msgspec.Raw) -> Any:
    """Return a value, or None if it cannot be parsed."""
    try:
        # msgspec's decoder rejects lone surrogates
        return json.loads(bytes(raw).decode("utf-8", "surrogatepass"), parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None


def _whole_number(digits: str) -> int | float:
    """Return a whole number, or its approximation if Python rejects it for its length."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _object(fields: _Fields) -> msgspec.Raw:
    """Return an object of raw fields."""
    try:
        return _raw(fields)
    except UnicodeEncodeError:  # a name has a lone surrogate
        items = [json.dumps(name).encode() + b":" + bytes(raw) for name, raw in fields.items()]
        return msgspec.Raw(b"{" + b",".join(items) + b"}")


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _with_text(message: msgspec.Raw, text: str, *, first: bool) -> msgspec.Raw:
    """Return a message with a text before or after its content; unchanged without content."""
    try:
        fields = _fields_of(message)
        content = _plain(fields["content"])
        if isinstance(content, str):
            whole = f"{text}\n\n{content}" if first else f"{content}\n\n{text}"
            fields["content"] = _rewritten(whole)
        elif isinstance(content, list):
            parts = _items_of(fields["content"])
            kinds = {each.get("type") for each in content if isinstance(each, dict)}
            kind = "input_text" if "input_text" in kinds or "input_image" in kinds else "text"
            parts.insert(0 if first else len(parts), _raw({"type": kind, "text": text}))
            fields["content"] = _raw(parts)
        return _object(fields)
    except (msgspec.MsgspecError, KeyError, RecursionError, ValueError):
        return message
