"""Quiet sessions on SQLite or a real server, and runs over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from edenmem.engine.cold.report import ColdReport
from edenmem.engine.cold.runner import ColdOptions, run_cold
from edenmem.engine.runtime.concurrency import demand_loop
from edenmem.engine.service import MemoryService
from edenmem.llm.protocol import LLMRequest
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.host import Agent, Session, User
from edenmem.settings.schema import ColdSettings, Settings
from tests.support.builders import (
    NOW,
    FixedClock,
    ago,
    make_agent,
    make_messages,
    make_session,
    make_user,
)
from tests.support.llm import FakeLLM
from tests.support.runtime import ANYTHING_GOES, make_runtime
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store
    from tests.support.embedder import FakeEmbedder

_LIMIT: ContextVar[asyncio.Timeout] = ContextVar("_LIMIT")

EVE, ADAM = make_agent("eve"), make_agent("adam")
ANNA = make_user("anna")


def fact_of(request: LLMRequest[Any]) -> Any:
    """Answer with one fact per conversation, which contains its session."""
    session = request.key.split("/")[0]
    content = f"Anna spoke in {session}."
    return {"facts": [{"content": content, "scope": "user", "shard": None, "private": False}]}


def no_reflections(request: LLMRequest[Any]) -> Any:
    return {"agent": [], "group": [], "user": [], "session": [], "shards": []}


@dataclass(kw_only=True)
class Quiet:
    """A store with Eve, Adam and Anna; ``clock`` starts at `NOW`."""

    store: Store
    llm: FakeLLM
    embedder: FakeEmbedder
    clock: FixedClock = field(default_factory=FixedClock)
    settings: Settings = field(
        default_factory=lambda: Settings(
            cold=ColdSettings(grace_seconds=0, concurrency=2), formation=ANYTHING_GOES
        )
    )

    def add(
        self,
        name: str,
        messages: int = 4,
        *,
        agents: Sequence[Agent] = (EVE,),
        users: Sequence[User] = (ANNA,),
        days: float = 1,
        **fields: Any,
    ) -> Session:
        """Add a session that began a number of days ago."""
        fields = {"last_activity": None, "created_at": ago(days=days), **fields}
        session = make_session(agents, users, name=name, **fields)
        assert self.store.host.put_session(session)
        self.say(session, messages, days=days)
        return session

    def say(self, session: Session, messages: int, *, days: float = 1) -> None:
        """Add messages of Anna and the agent."""
        said = make_messages(session, messages, start=ago(days=days), sender=ANNA.id)
        assert self.store.host.add_messages(session.id, said) == messages

    async def run(self, *, stop: asyncio.Event | None = None, **options: Any) -> ColdReport:
        """Run a new worker."""
        names = ColdOptions.__struct_fields__
        chosen = {name: options.pop(name) for name in list(options) if name in names}
        cold = msgspec.structs.replace(self.settings.cold, **options.pop("cold", {}))
        settings = msgspec.structs.replace(self.settings, cold=cold)
        return await run_cold(
            make_runtime(
                self.store,
                options.pop("settings", settings),
                llm=options.pop("llm", self.llm),
                embedder=self.embedder,
                clock=self.clock,
            ),
            MemoryService.from_runtime,
            ColdOptions(**chosen),
            stop=stop,
            **options,
        )

    def formations(self, status: FormationStatus | None = None) -> list[Formation]:
        """Return formations, oldest first."""
        found = self.store.formations.list_formations(statuses=[status] if status else ())
        return sorted(found, key=lambda formation: formation.id)

    def check(self, sessions: Sequence[Session]) -> None:
        """Check that every message is in exactly one applied formation per agent."""
        for session in sessions:
            messages = [message.id for message in self.store.host.messages(session.id)]
            for agent_id in session.agents:
                applied = [
                    message_id
                    for formation in self.store.formations.list_formations(
                        session_id=session.id, agent_id=agent_id
                    )
                    if formation.status is FormationStatus.APPLIED
                    for message_id in formation.message_ids
                ]
                assert sorted(applied) == sorted(messages), session.name


def make_quiet(store: Store, llm: FakeLLM, embedder: FakeEmbedder) -> Quiet:
    """Return a world without messages; the model finds one fact per conversation."""
    for agent in (EVE, ADAM):
        store.host.add_agent(agent)
    store.host.add_user(ANNA)
    llm.script("facts", fact_of)
    llm.script("dedup", {"decisions": []})
    llm.script("reflections", no_reflections)
    return Quiet(store=store, llm=llm, embedder=embedder)


#: What a run asks of a store beyond the outcome of one formation is tried on each kind.
ON_EACH_STORE = pytest.mark.parametrize("quiet", ["sqlite", SECANTUS_TOO], indirect=True)


@pytest.fixture
def quiet(
    request: pytest.FixtureRequest,
    open_store: Callable[[str], Store],
    llm: FakeLLM,
    embedder: FakeEmbedder,
) -> Quiet:
    """Return a world on SQLite, or on the store of the test's parameter."""
    return make_quiet(open_store(getattr(request, "param", "sqlite")), llm, embedder)


async def hang_until_time_is_up(*args: object, **options: object) -> Any:
    """Hang, and let the session's time expire immediately; see `no_clock`."""
    await demand_loop()
    _LIMIT.get().reschedule(asyncio.get_running_loop().time())
    await asyncio.Event().wait()


def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session's time expire only if something hangs, not on a slow machine."""

    def limit(seconds: float) -> asyncio.Timeout:
        assert seconds == ColdSettings().session_timeout_seconds
        _LIMIT.set(asyncio.timeout(None))
        return _LIMIT.get()

    patched = SimpleNamespace(**{**vars(asyncio), "timeout": limit})
    monkeypatch.setattr("edenmem.engine.cold.runner.asyncio", patched)


assert ago(days=0) == NOW
