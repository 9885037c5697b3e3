"""A conversation as shown to a model: speakers, times and texts, in lines that cannot be faked.

Each day has one line with its date. Each message starts at the left with its number, time and
speaker. Further lines of a message are indented, so that no message can imitate another one. The
fence around the whole is added when a prompt is rendered
(`edenmem.engine.runtime.llm_session`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import msgspec

from edenmem.acceptance.conversation import TOOL_LINE, Author, SourceMessage
from edenmem.engine.formation.thresholds import is_readable, most_characters
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

    @property
    def label(self) -> str:
        """Return the name as shown in a transcript; a person's own name cannot contain a mark."""
        return self.name + _MARKS.get(self.author, "")


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A range of messages as shown to a model.

    Attributes:
        text: For a prompt.
        speakers: The names of the people in it, in order of appearance.
        messages: The messages, numbered as in ``text``.
        accounts: For each message the account of the person who wrote it, if any.
    """

    text: str
    speakers: tuple[str, ...] = ()
    messages: tuple[SourceMessage, ...] = ()
    accounts: tuple[str | None, ...] = ()

    @property
    def characters(self) -> int:
        """Return the length of the text."""
        return len(self.text)

    def find_sources(self, numbers: Iterable[int]) -> tuple[SourceMessage, ...]:
        """Return the messages with these numbers, in order, without unknown numbers."""
        wanted = set(numbers)
        return tuple(message for message in self.messages if message.number in wanted)

    def account_of(self, message: SourceMessage) -> str | None:
        """Return the account of the person who wrote the message."""
        return self.accounts[message.number - 1]


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
    """Transcribe the readable messages, in order."""
    lines: list[str] = []
    said: list[SourceMessage] = []
    accounts: list[str | None] = []
    today: date | None = None
    for message in filter(is_readable, messages):
        who, text = cast.speaker(message), _read(message, settings)
        at, number = as_utc(message.created_at), len(said) + 1
        if at.date() != today:
            today = at.date()
            lines.append(f"{_WEEKDAYS[today.weekday()]} {today:%Y-%m-%d} UTC")
        lines.append(f"[{number}] {at:%H:%M} {who.label}: " + text.replace("\n", "\n    "))
        accounts.append(who.account)
        said.append(
            SourceMessage(
                number=number,
                id=message.id,
                author=who.author,
                speaker=who.name,
                sent_at=at,
                text=text,
            )
        )
    people = dict.fromkeys(each.speaker for each in said if each.author == "person")
    return Transcript(
        text="\n".join(lines),
        speakers=tuple(people),
        messages=tuple(said),
        accounts=tuple(accounts),
    )


def measure_length(message: Message, settings: FormationSettings) -> int:
    """Return the approximate length of a message in a transcript; 0 if not readable."""
    return _HEAD_CHARACTERS + len(_read(message, settings)) if is_readable(message) else 0


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
    body = cut_middle(clean(message.content).strip(), most_characters(message, settings))
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
