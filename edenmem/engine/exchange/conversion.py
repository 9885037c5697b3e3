"""Convert chats, and the memory of other systems, to lines for the importers.

The whole file is converted to private temporary files first. So everything that comes, and what is
left out, is known before anything is stored.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from edenmem.acceptance.orders import find_order
from edenmem.acceptance.secrets import find_secret
from edenmem.engine.edits.checks import (
    MOST_TAGS,
    MOST_TEXTS,
    NAME_LENGTH,
    TAG_LENGTH,
    TEXT_LENGTH,
)
from edenmem.engine.exchange.documents import DamagedDocument, is_document
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.kinds import FileKind
from edenmem.engine.exchange.records import MAX_PROBLEMS, Problem
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.sessions.format import BadLine, Spool, parse_time
from edenmem.engine.sessions.importer import People
from edenmem.errors import InputError
from edenmem.text import flat, tidy, word_count

#: Number of items between progress reports.
_PROGRESS = 100

_log = logging.getLogger(__name__)


def _encode(value: object) -> bytes:
    """Encode as JSON without empty fields; an invalid line is bytes already.

    Lone surrogates stay escaped, for the importer to judge.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each is not None}
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
    except RecursionError:
        return b"{"


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for items that do not name an agent or a user.

    ``shared`` puts facts without a user into the memory of the agent. ``add_missing`` adds unknown
    agents and users.
    """

    agent: str | None = None
    user: str | None = None
    shared: bool = False
    add_missing: bool = False


class Survey(msgspec.Struct, kw_only=True):
    """What a file has, and what of it does not come.

    Attributes:
        kind: The kind of the file.
        facts: Number of facts.
        sessions: Number of conversations.
        messages: Number of their messages.
        since: The time of the first message.
        until: The time of the last message.
        long: Number of facts over ``words``, which the import takes nevertheless.
        words: The length of a fact in words, as asked of models.
        undated: Number of conversations without times.
        agents: Names of agents, and whether the store knows them.
        users: Names of users, and whether the store knows them.
        without_agent: Number of items without an agent.
        without_user: Number of items without a user.
        left_out: Number of items that do not come, by name.
        objections: The first facts that must not be remembered, with the reason.
        damage: Why the rest of the file cannot be read, or "".
    """

    kind: FileKind
    words: int
    facts: int = 0
    long: int = 0
    sessions: int = 0
    messages: int = 0
    since: datetime | None = None
    until: datetime | None = None
    undated: int = 0
    agents: dict[str, bool] = msgspec.field(default_factory=dict)
    users: dict[str, bool] = msgspec.field(default_factory=dict)
    without_agent: int = 0
    without_user: int = 0
    left_out: dict[str, int] = msgspec.field(default_factory=Counter)
    objections: list[Problem] = msgspec.field(default_factory=list)
    damage: str = ""


class Conversion:
    """The converted lines of a file: ``facts`` and ``chats``, and a ``survey`` of them.

    Their temporary files are closed with ``files``.
    """

    def __init__(
        self,
        runtime: Runtime,
        source: Source | Path,
        kind: FileKind,
        files: ExitStack,
        defaults: Defaults,
        *,
        progress: Callable[[str, int, int], None] = lambda step, done, total: None,
    ) -> None:
        name = source.name if isinstance(source, Source) else str(source)
        unit = "entry"
        if isinstance(source, Source):
            unit = "entry" if is_document(source) else "line"
        self.survey = Survey(kind=kind, words=runtime.settings.formation.fact_words)
        self.facts, self.chats = (files.enter_context(Spool(name, unit)) for _ in range(2))
        self._people = People(runtime.store)
        self._now = runtime.clock()
        self.defaults = defaults
        self._seen: set[int] = set()
        left_out = self.survey.left_out
        number = 0
        try:
            for number, item in kind.read(source, left_out):
                self._take(number, item)
                if number % _PROGRESS == 0:
                    progress("reading", number, 0)
        except DamagedDocument as damage:
            self.survey.damage = str(damage)
        except InputError as error:
            if error.line is None:
                raise
            error.name_file(name)
            self.survey.damage = error.message
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            _log.debug("unexpected form", exc_info=error)
            self.survey.damage = f"a value after {unit} {number} has another type than expected"
        self.survey.left_out = {what: count for what, count in left_out.items() if count}

    def _take(self, number: int, item: object) -> None:
        if isinstance(item, dict) and ("messages" in item or self.survey.kind is FileKind.SESSIONS):
            self._take_chat(number, item)
        elif isinstance(item, dict) and item.get("type") == "fact":
            self._take_fact(number, item)
        elif self.survey.kind.has_chats:
            self.chats.put(number, _encode(item))
        else:
            self.facts.put(number, _encode(item))

    # -- facts -------------------------------------------------------------------------------

    def _take_fact(self, number: int, line: dict[str, Any]) -> None:
        agent, user = line.get("agent"), line.get("user")
        if agent is None and user is None and not self.defaults.shared:
            user = self.defaults.user
            self.survey.without_user += user is None
        is_shared = user is None and (agent is not None or self.defaults.shared)
        agent = self.defaults.agent if agent is None else agent
        self.survey.without_agent += agent is None
        line |= {"agent": agent, "scope": "agent" if is_shared else "user", "user": user}
        if reason := self._why_not(number, line):
            self.survey.left_out[reason] += 1
            return
        self._fit(line)
        self.survey.facts += 1
        self.survey.long += word_count(str(line.get("content"))) > self.survey.words
        for kind, name in (("agent", agent), ("user", user)):
            if isinstance(name, str) and self._is_new(kind, name):
                self.facts.put(number, _encode(self._account(kind, name)))
        self.facts.put(number, _encode(line))

    def _why_not(self, number: int, line: dict[str, Any]) -> str:
        """Return the name under which a fact is left out, or ""."""
        content = line.get("content")
        if not isinstance(content, str):
            return ""
        if not content.strip():
            return "empty items"
        if (expires_at := _moment(line.get("expires_at"))) and expires_at <= self._now:
            return "expired items"
        key = hash((str(line["agent"]), str(line["user"]), " ".join(content.casefold().split())))
        if key in self._seen:
            return "duplicates"
        self._seen.add(key)
        fields = (line.get("tags"), line.get("metadata"))  # without the key, which is an ID
        secret = find_secret(content) or find_secret(_encode(fields).decode())
        order = find_order(content, (), ())
        reason = f"contains {secret}" if secret else order
        if not reason:
            return ""
        if len(self.survey.objections) < MAX_PROBLEMS:
            place = f" ({line['source']})" if "source" in line else ""
            words = "" if secret else f": {tidy(content, 8)}"
            self.survey.objections.append(Problem(number, f"{reason}{place}{words}"))
        return "items with secrets" if secret else "orders to the agent"

    def _fit(self, line: dict[str, Any]) -> None:
        """Leave out tags and metadata over the limits of facts."""
        listed = line.get("tags")
        tags = [flat(str(tag)) for tag in listed] if isinstance(listed, list) else []
        texts = {flat(name): text for name, text in (line.get("metadata") or {}).items()}
        line["tags"] = [tag for tag in tags if 0 < len(tag) <= TAG_LENGTH][:MOST_TAGS]
        fitting = (
            (name, text)
            for name, text in texts.items()
            if 0 < len(name) <= NAME_LENGTH and len(text) <= TEXT_LENGTH
        )
        line["metadata"] = dict(islice(fitting, MOST_TEXTS))
        cut = len(tags) - len(line["tags"]) + len(texts) - len(line["metadata"])
        self.survey.left_out["tags and metadata over the limits"] += cut

    def _is_new(self, kind: str, name: str) -> bool:
        """Note a name; return whether its account is to be added before its first line."""
        names = self.survey.agents if kind == "agent" else self.survey.users
        if name in names:
            return False
        found = self._people.agent(name) if kind == "agent" else self._people.user(name)
        names[name] = found is not None
        return found is None and self.defaults.add_missing

    def _account(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "user":
            return {"type": "user", "username": name}
        agent = self._people.agent_or_new(name)
        return {"type": "agent", **msgspec.to_builtins(agent)}

    # -- chats -------------------------------------------------------------------------------

    def _take_chat(self, number: int, line: dict[str, Any]) -> None:
        survey, defaults = self.survey, self.defaults
        if not (line.get("agent") or line.get("agents")):
            line["agent"] = defaults.agent
            survey.without_agent += defaults.agent is None
        messages = [m for m in line.get("messages") or () if isinstance(m, dict)]
        if line.get("users") is None:
            names = {str(m.get("name") or "") for m in messages if m.get("role") in _PEOPLE}
            if defaults.user:
                line["users"] = [defaults.user]
            elif survey.kind is not FileKind.SESSIONS and names and "" not in names:
                line["users"] = sorted(names)
            elif survey.kind is not FileKind.SESSIONS and names:
                survey.without_user += 1
        survey.sessions += isinstance(line.get("messages"), list)  # else a bad line
        survey.messages += len(messages)
        for message in messages:
            parts = message.get("content")
            for part in parts if isinstance(parts, list) else ():
                has_text = isinstance(part, str) or {"text", "refusal"} & part.keys()
                survey.left_out["images and files"] += not has_text
        times = [at for m in messages if (at := _moment(m.get("created_at")))]
        survey.undated += not times and not line.get("created_at") and bool(messages)
        for at in times:
            survey.since = min(survey.since or at, at)
            survey.until = max(survey.until or at, at)
        for name in (line.get("agent"), *_names(line.get("agents"))):
            if isinstance(name, str):
                self._is_new("agent", name)
        for name in _names(line.get("users")):
            self._is_new("user", name)
        self.chats.put(number, _encode(line))


#: Roles of messages of people.
_PEOPLE = ("user", "human")


def _names(given: object) -> list[str]:
    return [name for name in given if isinstance(name, str)] if isinstance(given, list) else []


def _moment(value: object) -> datetime | None:
    try:
        return parse_time(value, "")
    except BadLine:
        return None
