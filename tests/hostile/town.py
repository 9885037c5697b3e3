"""A small town with something to lose, and what is left of it after each hostile conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from edenmem.engine.reports import ContextReport, FormationReport
from edenmem.engine.service import MemoryService
from edenmem.engine.sessions.importer import import_sessions
from edenmem.llm.protocol import LLMRequest
from edenmem.models.changes import AddFact, AddReflection, Change
from edenmem.models.host import Message, Session
from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.hostile.puppet import Puppet
from tests.isolation.raw import Document, RawSqlite
from tests.support.builders import (
    ACTOR,
    FixedClock,
    change_set,
    make_agent,
    make_fact,
    make_reflection,
    make_session,
    make_user,
    some,
    writing,
)
from tests.support.embedder import FakeEmbedder
from tests.support.memory import set_policy
from tests.support.runtime import make_runtime

CONVERSATIONS = Path(__file__).with_name("conversations.jsonl")

MIRA, OTTO = make_agent("mira", name="Mira", id="a" * 24), make_agent("otto", id="a1" * 12)
LENA, MALLORY = make_user("lena", id="b" * 24), make_user("mallory", id="b1" * 12)
LENA_TALKS = make_session([MIRA], [LENA], id="c" * 24, name="lena-private")

#: What no conversation of the set has a right to touch.
LENAS = (
    Scope.user(MIRA.id, LENA.id),
    Scope.session(MIRA.id, LENA_TALKS.id),
    Scope.user(OTTO.id, LENA.id),
    Scope.group(MIRA.id, "board"),
)
OTTOS = (Scope.agent(OTTO.id), Scope.shard(OTTO.id, "vault"))
SHARED = (Scope.agent(MIRA.id), Scope.shard(MIRA.id, "lore"))


@dataclass(frozen=True)
class Aftermath:
    """One conversation, and what came of it."""

    line: dict[str, Any]
    session: Session
    messages: list[Message]
    reports: list[FormationReport]
    requests: list[LLMRequest[Any]]
    before: list[Document]
    after: list[Document]
    context: ContextReport
    lena_before: str
    lena_after: str
    imported_again: int

    @property
    def name(self) -> str:
        """The session's name."""
        return str(self.line["session"])


def conversations() -> Iterator[dict[str, Any]]:
    """The set, with what is only described written out: a content that is so many ``times``
    itself, a message that comes ``again`` so often."""
    with CONVERSATIONS.open(encoding="utf-8") as file:
        for line in map(json.loads, file):
            line["messages"] = [
                {**message, "content": message["content"] * message.get("times", 1)}
                for message in line["messages"]
                for _ in range(message.get("again", 1))
            ]
            for number, message in enumerate(line["messages"]):
                message["content"] = message["content"].replace("fact %d", f"fact {number}")
            yield line


def writable(session: Session) -> set[Scope]:
    """What a conversation may change: its agents' own memory, its group's, its own, and that of
    the only person in it."""
    if session.incognito:
        return set()
    scopes: set[Scope] = set()
    for agent in session.agents:
        scopes |= {scope for scope in (*SHARED, *OTTOS) if scope.agent_id == agent}
        scopes.add(Scope.session(agent, session.id))
        if session.group_id:
            scopes.add(Scope.group(agent, session.group_id))
        if session.users == (MALLORY.id,):
            scopes.add(Scope.user(agent, MALLORY.id))
    return scopes


class Town:
    """The store, and the service over it."""

    def __init__(self, path: Path, extraction: str) -> None:
        self.path = path
        self.store = SqliteStore(path)
        self.raw = RawSqlite(path)
        self.llm = Puppet()
        self.settings = Settings(
            formation=FormationSettings(extraction=extraction, check=False),  # type: ignore[arg-type]
        )
        self.embedder = FakeEmbedder()
        self.clock = FixedClock()
        self.service = MemoryService(
            self.store,
            self.settings,
            llm=self.llm,
            embedder=self.embedder,
            actor=ACTOR,
            clock=self.clock,
        )
        self._settle()

    def _settle(self) -> None:
        self.store.database.initialize()
        for agent in (MIRA, OTTO):
            assert self.store.host.add_agent(agent)
        for user in (LENA, MALLORY):
            assert self.store.host.add_user(user)
        assert self.store.host.put_session(LENA_TALKS)
        for scope in (SHARED[1], OTTOS[1]):
            set_policy(self.store, scope)
        changes: list[Change] = []
        for scope in (*LENAS, *OTTOS, *SHARED):
            for text in ("Lena runs the paper workshop.", "Lena's door code is 4711."):
                vector, model = self.embedder.vector(text), self.embedder.model
                fact = make_fact(scope, text, embedding=vector, embedding_model=model)
                if scope.session_id is None:
                    changes.append(AddFact(fact=fact))
            reflection = make_reflection(scope, f"Lena trusts this {scope.kind}.")
            changes.append(AddReflection(reflection=reflection, word_limit=200))
            changes.append(
                writing(
                    scope, f"[PEOPLE]\n- Lena, of the {scope.kind}", word_limit=200, at=self.clock()
                )
            )
        assert all(result.ok for result in self.store.changes.apply(change_set(*changes)))

    async def suffer(self, line: dict[str, Any]) -> Aftermath:
        """Import a conversation, form and consolidate it, and read what there is then."""
        self.clock.advance(minutes=10)
        self.llm.requests.clear()
        before, lena_before = self.raw.documents(), await self._lenas()
        data = [json.dumps(line)]
        report = import_sessions(make_runtime(self.store, clock=self.clock), data)
        assert not report.problems
        again = import_sessions(make_runtime(self.store, clock=self.clock), data)
        session_id = derived_id("session", line["session"])
        reports = await self.service.form_memories(session_id)
        session = some(self.store.host.session(session_id))
        for scope in sorted(writable(session), key=lambda scope: scope.key):
            await self.service.consolidate(scope, force=True)
        context = await self.service.assemble_context(
            session_id, recall="always", message=line["messages"][0]["content"]
        )
        return Aftermath(
            line=line,
            session=session,
            messages=list(self.store.host.messages(session_id)),
            reports=reports,
            requests=list(self.llm.requests),
            before=before,
            after=self.raw.documents(),
            context=context,
            lena_before=lena_before,
            lena_after=await self._lenas(),
            imported_again=again.new_messages,
        )

    async def _lenas(self) -> str:
        """What Lena's agent has in mind of her, as it is in a prompt."""
        xml = await self.service.get_memory_context(LENA_TALKS.id, force_refresh=True)
        own = [part for part in ElementTree.fromstring(xml) if part.tag in OWN]
        return "".join(ElementTree.tostring(part, encoding="unicode") for part in own)


OWN = ("UserMemory", "SessionMemory")
