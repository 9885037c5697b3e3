"""Parse the lines of `import`.

A line is ``{"session": …, "agent": …, "users": […], "messages": […], …}``. Messages have edenmem's
own form or that of OpenAI's chat API (content in parts, tool calls as functions, no names and no
times). Unknown fields of a message are ignored, since APIs add fields over time; an unknown field
of the line is an error, since a mistyped "incognito" must not turn a private conversation into
memory.
"""

from __future__ import annotations

import codecs
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from edenmem.invalid import MISSING, TIME, UNKNOWN, explain_json, explain_value
from edenmem.models.host import Role, ToolCall
from edenmem.models.ids import as_utc
from edenmem.text import clean

#: Maximum length of a line in bytes.
LINE_BYTES = 64 * 1024 * 1024

#: Number of bytes buffered in RAM before a temporary file is used.
_SPOOL_BYTES = 8 * 1024 * 1024


class Spool:
    """Numbered lines in a private temporary file, which can be read several times.

    A context manager that removes the file. ``name`` is that of their source in messages, ``unit``
    what the numbers count: "line", or "entry" of a document.
    """

    def __init__(self, name: str = "", unit: str = "line") -> None:
        self.name = name
        self.unit = unit
        self.count = 0
        # closed in __exit__
        self._file = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, number: int, data: bytes) -> None:
        """Add a line."""
        self.count += 1
        self._file.write(b"%d %d\n" % (number, len(data)) + data)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each line, and its bytes."""
        self._file.seek(0)
        while head := self._file.readline():
            number, size = map(int, head.split())
            yield number, self._file.read(size)


def read_lines(source: Iterable[bytes | str]) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers, from 1, and the bytes of the lines that are not blank."""
    for number, line in enumerate(source, 1):
        data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        data = data.removeprefix(codecs.BOM_UTF8) if number == 1 else data
        if data.strip():
            yield number, data


Name = Annotated[str, Meta(min_length=1, max_length=1000)]

#: Roles of other formats, and their equivalents.
_ROLES = {"developer": "system", "function": "tool", "human": "user", "ai": "assistant"}


#: Maximum nesting of tool arguments and results. MongoDB allows 100 levels in a document.
MOST_LEVELS = 64


class BadLine(Exception):
    """An error in a line: the path of the field, and what is wrong with it."""


class ParsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A cleaned message; ``at`` is None if the line has no time."""

    role: Role
    content: str
    name: str | None
    at: datetime | None
    tool_calls: tuple[ToolCall, ...]


class ParsedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session with the agent and user names of the line."""

    session: str
    agents: tuple[str, ...]
    users: tuple[str, ...]
    owner: str | None
    group: str | None
    incognito: bool
    title: str | None
    platform: str | None
    created_at: datetime | None
    messages: tuple[ParsedMessage, ...]


class _Function(msgspec.Struct):
    name: Name
    arguments: Any = None


class _Call(msgspec.Struct):
    id: str | None = None
    tool: str | None = None
    args: Any = None
    status: str | None = None
    result: Any = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[Any] | msgspec.UnsetType | None = msgspec.UNSET
    name: str | None = None
    created_at: str | float | None = None
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    session: Name
    messages: list[_Message]
    agent: Name | None = None
    agents: list[Name] | None = None
    users: list[Name] | None = None
    owner: Name | None = None
    group: Name | None = None
    incognito: bool = False
    title: str | None = None
    platform: str | None = None
    created_at: str | float | None = None


def parse(data: bytes) -> ParsedSession:
    """Parse a line.

    Raises:
        BadLine: the line is not JSON, or not a session.
    """
    line = _line(data)
    agents = dict.fromkeys(_name(name) for name in ([line.agent] if line.agent else []))
    agents |= dict.fromkeys(_name(name) for name in line.agents or ())
    if not agents:
        raise BadLine(f"agent {MISSING}")
    return ParsedSession(
        session=_name(line.session),
        agents=tuple(agents),
        users=tuple(dict.fromkeys(_name(name) for name in line.users or ())),
        owner=_name(line.owner) if line.owner else None,
        group=_name(line.group) if line.group else None,
        incognito=line.incognito,
        title=clean(line.title).strip() or None if line.title else None,
        platform=clean(line.platform).strip() or None if line.platform else None,
        created_at=parse_time(line.created_at, "created_at"),
        messages=tuple(
            _message(message, f"messages[{index}]") for index, message in enumerate(line.messages)
        ),
    )


def parse_message(value: Mapping[str, Any], path: str) -> ParsedMessage:
    """Parse a message in chat API form.

    Raises:
        BadLine: ``value`` is not a message.
    """
    at = value.get("created_at")
    given = {**value, "created_at": at if isinstance(at, str | float | int) else None}
    try:
        message = msgspec.convert(given, _Message)
    except msgspec.ValidationError as error:
        raise BadLine(f"{path}.{explain_value(error)}") from None
    return _message(message, path)


def _line(data: bytes) -> _Line:
    try:
        # not msgspec's decoder, which rejects the lone surrogates of truncated chats
        value = json.loads(data.decode("utf-8", "surrogatepass"))
    except (RecursionError, ValueError):
        raise BadLine(explain_json(data)) from None
    try:
        return msgspec.convert(value, _Line)
    except msgspec.ValidationError as error:
        why = explain_value(error)
        known = f"; known fields: {', '.join(_Line.__struct_fields__)}" if UNKNOWN in why else ""
        raise BadLine(f"{why}{known}") from None


def _message(message: _Message, path: str) -> ParsedMessage:
    role = _ROLES.get(message.role, message.role)
    if role not in get_args(Role):
        roles = ", ".join(get_args(Role))
        raise BadLine(f"{path}.role must be one of {roles}, not {message.role!r}")
    if message.content is msgspec.UNSET and not message.tool_calls:
        raise BadLine(f"{path}.content {MISSING}")
    known_role: Any = role
    return ParsedMessage(
        role=known_role,
        content=_content(message.content, f"{path}.content"),
        name=(clean(message.name).strip() or None) if message.name else None,
        at=parse_time(message.created_at, f"{path}.created_at"),
        tool_calls=tuple(
            _tool_call(call, f"{path}.tool_calls[{index}]")
            for index, call in enumerate(message.tool_calls or ())
        ),
    )


def _content(content: str | list[Any] | msgspec.UnsetType | None, path: str) -> str:
    """Return the text of a content, joined from its text parts."""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        return ""
    texts: list[str] = []
    for index, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise BadLine(f"{path}[{index}] must be text or a JSON object with a 'type'")
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            texts.append(text)
        elif part.get("type") in ("text", "input_text", "output_text"):
            raise BadLine(f"{path}[{index}].text must be text")
    return clean("\n".join(texts))


def _tool_call(call: _Call, path: str) -> ToolCall:
    tool = call.tool or (call.function.name if call.function is not None else "")
    if not tool:
        raise BadLine(f"{path}.tool {MISSING}")
    args = call.function.arguments if call.function is not None else call.args
    if call.function is not None and isinstance(args, str):
        with suppress(ValueError, RecursionError):  # a model may have malformed the JSON
            args = json.loads(args)
    return ToolCall(
        tool=clean(tool),
        args=clean_value(args, f"{path}.args"),
        status=clean(call.status) if call.status else None,
        result=clean_value(call.result, f"{path}.result"),
        id=clean(call.id).strip() if call.id else "",
    )


def clean_value(value: Any, path: str, levels: int = MOST_LEVELS) -> Any:
    """Return tool arguments or results that every store can keep.

    Raises:
        BadLine: the value is nested too deep.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)  # exceeds the integers of stores
    if isinstance(value, list | dict) and not levels:
        raise BadLine(f"{path} is nested more than {MOST_LEVELS} levels deep")
    if isinstance(value, list):
        return [clean_value(item, path, levels - 1) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean_value(item, path, levels - 1) for key, item in value.items()}
    return value


def _name(text: str) -> str:
    name = clean(text).strip()
    if not name:
        raise BadLine("the name of the session, an agent, a user or the group is blank")
    return name


#: Seconds since 1970 are less, milliseconds more.
_MOST_SECONDS = 1e11
_NUMBER = re.compile(r"\d{9,13}(?:\.\d*)?")


def parse_time(given: object, path: str) -> datetime | None:
    """Parse an ISO 8601 time (default zone: UTC), or seconds or milliseconds since 1970.

    Raises:
        BadLine: the time is invalid.
    """
    if given is None:
        return None
    try:
        text = given.strip() if isinstance(given, str) else str(float(given))  # type: ignore[arg-type]
        if isinstance(given, str) and not _NUMBER.fullmatch(text):
            return as_utc(datetime.fromisoformat(text))
        seconds = float(text)
        return datetime.fromtimestamp(
            seconds / 1000 if abs(seconds) > _MOST_SECONDS else seconds, UTC
        )
    except (ValueError, OverflowError, TypeError, OSError):
        raise BadLine(f"{path} {TIME}") from None
