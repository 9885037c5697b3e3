"""A conversation as a model reads it: who said what and when, in lines that cannot be faked.

Each message starts at the left with its time and its speaker; every further line of it is
indented, so that nobody's message can pretend to hold another one's. The fence around the whole
is put there when a prompt is rendered (`edenmem.engine.runtime.llm_session`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from edenmem.engine.formation.thresholds import is_readable, most_characters
from edenmem.models.host import Agent, Message, ToolCall, User
from edenmem.models.ids import as_utc, is_id
from edenmem.settings.schema import FormationSettings
from edenmem.text import clean

_NAME_CHARACTERS = 60
_SYNTAX = str.maketrans("", "", "[]():<>`")
_SOMEBODY = "somebody"


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """``text`` for a prompt; the names of the people in it, in order of appearance."""

    text: str
    speakers: tuple[str, ...]

    @property
    def characters(self) -> int:
        """The length of the text."""
        return len(self.text)


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """Who can speak: this agent, all agents by id, all accounts by id, and ``only_user``, who is
    meant by a person's message without a sender (None if there are several people)."""

    agent_id: str
    agents: Mapping[str, Agent]
    users: Mapping[str, User]
    only_user: User | None = None

    def person(self, user: User) -> str:
        """A person's name: that of their canonical account, so that all their accounts are one."""
        return tidy_name(self.users.get(user.person_id, user).username) or _SOMEBODY

    def speaker(self, message: Message) -> tuple[str, bool]:
        """The name of whoever wrote the message, and whether it is a person.

        An account decides before the name that a message carries: that one can be made up.
        """
        sender = message.sender or ""
        if agent := self.agents.get(sender):
            return self._agent_name(agent), False
        if message.role == "tool":
            name = tidy_name(message.name or "")
            return (f"tool {name}" if name else "tool"), False
        if message.role == "assistant":
            if sender in ("", self.agent_id):
                return self._agent_name(self.agents[self.agent_id]), False
            return f"{tidy_name(message.name or '') or 'an agent'} (another agent)", False
        if user := self.users.get(sender):
            return self.person(user), True
        name = tidy_name(message.name or "")
        if not sender and self.only_user is not None:
            return self.person(self.only_user), True
        return name or _SOMEBODY, True

    def _agent_name(self, agent: Agent) -> str:
        role = "this agent" if agent.id == self.agent_id else "another agent"
        return f"{tidy_name(agent.label) or 'agent'} ({role})"


def tidy_name(name: str) -> str:
    """A name on one line, without the characters that structure a transcript or a heading; empty
    for an id, which is nobody's name."""
    tidy = " ".join(clean(name).translate(_SYNTAX).split())[:_NAME_CHARACTERS].rstrip()
    return "" if is_id(tidy.lower()) else tidy


def transcribe(messages: Iterable[Message], cast: Cast, settings: FormationSettings) -> Transcript:
    """The readable ones among ``messages``, in their order."""
    blocks: list[str] = []
    speakers: dict[str, None] = {}
    for message in messages:
        if not is_readable(message):
            continue
        name, is_person = cast.speaker(message)
        if is_person:
            speakers[name] = None
        blocks.append(_block(message, name, settings))
    return Transcript(text="\n".join(blocks), speakers=tuple(speakers))


def measure_length(message: Message, settings: FormationSettings) -> int:
    """About how many characters a message takes in a transcript; 0 if it is not readable."""
    return len(_block(message, "", settings)) if is_readable(message) else 0


def cut_middle(text: str, limit: int) -> str:
    """``text``, or its beginning and end with a mark between that says how much is left out."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    end = text[-tail:] if tail else ""
    return f"{text[:head]} [… {len(text) - limit} characters left out …] {end}".rstrip()


def _block(message: Message, name: str, settings: FormationSettings) -> str:
    body = cut_middle(clean(message.content).strip(), most_characters(message, settings))
    calls = (_call(call, settings.tool_characters) for call in message.tool_calls)
    lines = [line for part in (body, *calls) if part for line in _lines(part)]
    return f"[{as_utc(message.created_at):%Y-%m-%d %H:%M} UTC] {name}: " + "\n    ".join(lines)


def _lines(text: str) -> Iterator[str]:
    """Lines by every separator that a reader may take for one, not only the newline."""
    return (line.rstrip() for line in text.splitlines())


def _call(call: ToolCall, limit: int) -> str:
    name = tidy_name(call.tool) or "a tool"
    status = f" [{tidy_name(call.status)}]" if call.status else ""
    asked = f" {_summary(call.args, limit)}" if call.args else ""
    gave = f" -> {_summary(call.result, limit)}" if call.result is not None else ""
    return f"tool {name}{status}{asked}{gave}"


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
