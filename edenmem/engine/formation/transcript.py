"""A conversation as shown to a model: speakers, times and texts, in lines that cannot be faked.

Each day has one line with its date. Each message starts at the left with its number, time and
speaker. Further lines of a message are indented, so that no message can imitate another one. The
fence around the whole is added when a prompt is rendered
(`edenmem.engine.runtime.llm_session`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cached_property
from typing import Any

import msgspec

from edenmem.acceptance.evidence import TOOL_LINE, Author, Conversation, SourceMessage
from edenmem.models.host import Agent, Message, ToolCall, User
from edenmem.models.ids import as_utc, is_id
from edenmem.settings.schema import FormationSettings
from edenmem.text import clean

_NAME_CHARACTERS = 60
_SYNTAX = str.maketrans("", "", "[]():<>`*")
_NAMELESS = "someone"
#: Length of the head of a message: number, time and speaker.
_HEAD_CHARACTERS = len("[10] 12:00 username: ")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: Marks of speakers, by kind.
_MARKS: dict[Author, str] = {"agent": "*", "other agent": " (other agent)"}


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """The writer of a message. ``account`` is the sending account, None except for people."""

    name: str
    author: Author
    account: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """A message, or a part of a long one, with its lines as shown to a model."""

    message: SourceMessage
    lines: str


class Transcript(msgspec.Struct, frozen=True, dict=True):
    """A range of messages as shown to a model, numbered from 1."""

    entries: tuple[Entry, ...] = ()

    @cached_property
    def text(self) -> str:
        """Return the transcript for a prompt."""
        lines: list[str] = []
        today: date | None = None
        for entry in self.entries:
            day = entry.message.sent_at.date()
            if day != today:
                today = day
                lines.append(f"{_WEEKDAYS[day.weekday()]} {day:%Y-%m-%d} UTC")
            lines.append(entry.lines)
        return "\n".join(lines)

    @cached_property
    def talk(self) -> Conversation:
        """Return the messages, numbered as in ``text``."""
        return Conversation(tuple(entry.message for entry in self.entries))

    def parts(self, characters: int) -> Iterator[Transcript]:
        """Yield transcripts of at most ``characters`` characters, or of one entry; numbers stay."""
        part: list[Entry] = []
        length = 0
        for entry in self.entries:
            if part and length + len(entry.lines) > characters:
                yield Transcript(tuple(part))
                part, length = [], 0
            part.append(entry)
            length += len(entry.lines)
        if part:
            yield self if len(part) == len(self.entries) else Transcript(tuple(part))


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """The possible speakers: this agent, all agents and accounts by ID, and ``only_user``.

    ``only_user`` is the sender of a person's message without a sender; None with several people.
    """

    agent_id: str
    agents: Mapping[str, Agent]
    users: Mapping[str, User]
    only_user: User | None = None

    def person(self, user: User) -> str:
        """Return a person's name: that of their canonical account, for all their accounts."""
        return tidy_name(self.users.get(user.person_id, user).username) or _NAMELESS

    def speaker(self, message: Message) -> Speaker:
        """Return the writer of the message.

        The account takes precedence over the name in a message, which can be faked.
        """
        sender, name = message.sender or "", tidy_name(message.name or "")
        if agent := self.agents.get(sender):
            return self._agent(agent)
        if message.role == "tool":
            return Speaker(name=f"tool {name}" if name else "tool", author="tool")
        if message.role == "assistant":
            if sender in ("", self.agent_id):
                return self._agent(self.agents[self.agent_id])
            return Speaker(name=name or "an agent", author="other agent")
        if user := self.users.get(sender):
            return Speaker(name=self.person(user), author="person", account=user.id)
        if not sender and self.only_user is not None:
            user = self.only_user
            return Speaker(name=self.person(user), author="person", account=user.id)
        return Speaker(name=name or _NAMELESS, author="person", account=sender or None)

    def _agent(self, agent: Agent) -> Speaker:
        author: Author = "agent" if agent.id == self.agent_id else "other agent"
        return Speaker(name=tidy_name(agent.label) or "agent", author=author)


def tidy_name(name: str) -> str:
    """Return a name on one line, without characters that structure a transcript or heading.

    Empty for an ID.
    """
    tidy = " ".join(clean(name).translate(_SYNTAX).split())[:_NAME_CHARACTERS].rstrip()
    return "" if is_id(tidy.lower()) else tidy


def transcribe(messages: Iterable[Message], cast: Cast, settings: FormationSettings) -> Transcript:
    """Transcribe the readable messages, in order, long ones in parts. No text is left out."""
    entries: list[Entry] = []
    for message in (each for each in messages if each.is_readable):
        who, at = cast.speaker(message), as_utc(message.created_at)
        label = who.name + _MARKS.get(who.author, "")  # no person's name can contain a mark
        pieces = split_text(_read(message, settings), settings.message_characters)
        for place, text in enumerate(pieces, 1):
            number = len(entries) + 1
            part = f" (part {place} of {len(pieces)})" if len(pieces) > 1 else ""
            said = SourceMessage(number, message.id, who.author, who.name, at, text, who.account)
            shown = text.replace("\n", "\n    ")
            lines = f"[{number}] {at:%H:%M} {label}{part}: {shown}"
            entries.append(Entry(said, lines))
    return Transcript(tuple(entries))


def split_text(text: str, limit: int) -> list[str]:
    """Split a text in pieces of at most ``limit`` characters, between words where possible."""
    pieces: list[str] = []
    while len(text) > limit:
        cut = max(text.rfind("\n", 0, limit), text.rfind(" ", 0, limit)) + 1 or limit
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*pieces, text]


def measure_length(message: Message, settings: FormationSettings) -> int:
    """Return the approximate length of a message in a transcript; 0 if not readable."""
    return _HEAD_CHARACTERS + len(_read(message, settings)) if message.is_readable else 0


def cut_middle(text: str, limit: int) -> str:
    """Return ``text``, or its start and end with a mark for the omitted length."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    end = text[-tail:] if tail else ""
    return f"{text[:head]} [… {len(text) - limit} characters left out …] {end}".rstrip()


def _read(message: Message, settings: FormationSettings) -> str:
    """Return a message's text with its tool calls, with newlines as the only line breaks.

    Text in the form of a tool's line gets another arrow, so that only tool results look like one.
    """
    body = clean(message.content).strip()
    if message.role == "tool":
        body = cut_middle(body, settings.tool_characters)
    calls = (_call(call, settings.tool_characters) for call in message.tool_calls)
    said = (
        line.replace("->", "→") if TOOL_LINE.match(line) else line for line in body.splitlines()
    )
    answered = (line for call in calls for line in call.splitlines())
    lines = (line.rstrip() for line in (*said, *answered))
    return "\n".join(line for line in lines if line)


def _call(call: ToolCall, limit: int) -> str:
    name = tidy_name(call.tool) or "a tool"
    status = call.status if call.status != "completed" else None  # the usual status
    noted = f" ({tidy_name(status)})" if status else ""
    asked = f" {_summary(call.args, limit)}" if call.args else ""
    gave = f" -> {_summary(call.result, limit)}" if call.result is not None else ""
    return f"tool {name}{noted}{asked}{gave}"


def _summary(value: Any, limit: int) -> str:
    value = _readable(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return cut_middle(" ".join(clean(text).split()), limit)


def _readable(value: Any) -> Any:
    """Drop the tags of Extended JSON: ``{"$oid": "65…"}`` reads as ``"65…"``."""
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if not isinstance(value, dict):
        return value
    (key, inner), *others = value.items() or [("", None)]
    if key.startswith("$") and not others:
        return _readable(inner)
    return {name: _readable(item) for name, item in value.items()}
