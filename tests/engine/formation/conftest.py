"""A world in which memories are formed: the cast, a scripted model, and a clock to move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from edenmem.engine.formation.former import Former
from edenmem.engine.reports import FormationReport
from edenmem.models.formation import Formation, FormationStatus, Trigger
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import FixedClock, make_message, make_session
from tests.support.embedder import FakeEmbedder
from tests.support.llm import FakeLLM
from tests.support.memory import add_fact, facts_of
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


def fact(content: str, scope: str = "user", **fields: Any) -> dict[str, Any]:
    """An extracted fact as a model writes it."""
    return {"content": content, "scope": scope, "shard": None, "private": False, **fields}


def facts(*items: dict[str, Any] | str) -> dict[str, Any]:
    """An answer to ``facts``."""
    return {"facts": [fact(item) if isinstance(item, str) else item for item in items]}


def reflections(
    *, shards: dict[str, list[str]] | None = None, **scopes: list[str]
) -> dict[str, Any]:
    """An answer to ``reflections``."""

    def items(contents: list[str]) -> list[dict[str, Any]]:
        return [{"content": content, "private": False} for content in contents]

    return {
        **{kind: items(scopes.get(kind, [])) for kind in ("agent", "group", "user", "session")},
        "shards": [
            {"shard": name, "reflections": items(contents)}
            for name, contents in (shards or {}).items()
        ],
    }


def decision(fact: int, action: str, target: int | None = None, content: str | None = None) -> Any:
    """One decision about a new fact."""
    return {
        "fact": f"N{fact}",
        "reason": "because",
        "action": action,
        "target": None if target is None else f"E{target}",
        "content": content,
    }


def decisions(*items: Any) -> dict[str, Any]:
    """An answer to ``dedup``."""
    return {"decisions": list(items)}


@dataclass(kw_only=True)
class World:
    """The cast, and what a `Former` needs; ``llm`` finds nothing unless scripted."""

    cast: Cast
    llm: FakeLLM
    embedder: FakeEmbedder
    clock: FixedClock

    @property
    def store(self) -> Store:
        return self.cast.store

    def former(self, worker: str = "worker-1", **options: Any) -> Former:
        """A former; options of its constructor, or else formation settings."""
        own = {name: options.pop(name) for name in ("llm", "embedder", "store") if name in options}
        settings = options.pop("settings", Settings())
        formation = msgspec.structs.replace(settings.formation, **{"check": False, **options})
        return Former(
            make_runtime(
                own.get("store", self.store),
                msgspec.structs.replace(settings, formation=formation),
                llm=own.get("llm", self.llm),
                embedder=own.get("embedder", self.embedder),
                clock=self.clock,
            ),
            worker=worker,
        )

    def add_session(self, agents: Sequence[Agent], *users: User, **fields: Any) -> Session:
        """A session of these agents."""
        session = make_session(agents, users, **fields)
        assert self.store.host.put_session(session)
        return session

    def say(self, *contents: str, session: Session | None = None, **fields: Any) -> list[Message]:
        """Messages of Anna (or of ``sender``), a minute apart, put into the store."""
        session = session or self.cast.session
        fields.setdefault("sender", self.cast.anna.id)
        messages = [
            make_message(session, content, created_at=self.clock.advance(minutes=1), **fields)
            for content in contents
        ]
        assert self.store.host.add_messages(session.id, messages) == len(messages)
        return messages

    async def form(
        self,
        *,
        trigger: Trigger = Trigger.FORCED,
        session: Session | None = None,
        agent: Agent | None = None,
        dry_run: bool = False,
        **options: Any,
    ) -> list[FormationReport]:
        """Form with a new former."""
        return await self.former(**options).form(
            session or self.cast.session, agent or self.cast.eve, trigger=trigger, dry_run=dry_run
        )

    async def form_one(self, **options: Any) -> FormationReport:
        """Form what is one range."""
        [report] = await self.form(**options)
        return report

    async def learn(
        self, *said: str, facts: Any = None, reflections: Any = None, **options: Any
    ) -> FormationReport:
        """Say something that a model answers, and form it as one range."""
        for task, answer in (("facts", facts), ("reflections", reflections)):
            if answer is not None:
                self.llm.script(task, answer)
        sender = options.pop("sender", self.cast.anna.id)
        self.say(*said, session=options.get("session"), sender=sender)
        return await self.form_one(**options)

    def know(self, scope: Scope, content: str, **fields: Any) -> Fact:
        """A fact with a vector, there before."""
        vector, model = self.embedder.vector(content), self.embedder.model
        return add_fact(
            self.store, scope, content, embedding=vector, embedding_model=model, **fields
        )

    def contents(self, *scopes: Scope) -> list[str]:
        """The facts of these scopes, sorted."""
        return sorted(each.content for each in facts_of(self.store, *scopes))

    def facts(self, *scopes: Scope) -> list[Fact]:
        """The facts of these scopes with their vectors."""
        return facts_of(self.store, *scopes, with_vectors=True)

    def pending(self, scope: Scope) -> list[str]:
        """The pending reflections of a scope."""
        return [each.content for each in self.store.memory.pending(scope)]

    def formations(self) -> list[Formation]:
        """All formations, latest first."""
        return list(self.store.formations.list_formations())

    def formation(self, status: FormationStatus) -> Formation:
        """The one formation there is, which must have this status."""
        [only] = self.formations()
        assert only.status is status
        return only


@pytest.fixture
def anywhere(store: Store) -> World:
    """A world on each kind of store."""
    return World(cast=make_cast(store), llm=FakeLLM(), embedder=FakeEmbedder(), clock=FixedClock())


@pytest.fixture
def world(cast: Cast, llm: FakeLLM, embedder: FakeEmbedder, clock: FixedClock) -> World:
    """A world with nothing said yet."""
    llm.script("facts", facts())
    llm.script("reflections", reflections())
    return World(cast=cast, llm=llm, embedder=embedder, clock=clock)
