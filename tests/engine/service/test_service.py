"""The service on SQLite, with a scripted model and a word-based embedder."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, ProviderRateLimited, UsageError
from edenmem.models.formation import Trigger
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import FormationSettings, Settings
from tests.engine.conftest import make_cast
from tests.support.builders import ACTOR, FixedClock, ago, make_message, make_messages, make_session
from tests.support.embedder import FakeEmbedder
from tests.support.llm import FakeLLM
from tests.support.memory import add_fact, add_reflection, facts_of, set_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from edenmem.models.memory import Reflection
    from edenmem.store.protocol.store import Store
    from tests.engine.conftest import Cast

SETTINGS = Settings(
    formation=FormationSettings(message_interval=6, token_interval=100_000, check=False),
)

FACTS = {
    "facts": [{"content": "Anna lives in Porto.", "scope": "user", "shard": None, "private": False}]
}


def reflections(**by_scope: list[str]) -> dict[str, Any]:
    empty: dict[str, Any] = {"agent": [], "shards": [], "group": [], "user": [], "session": []}
    items = {
        scope: [{"content": text, "private": False} for text in texts]
        for scope, texts in by_scope.items()
    }
    return {**empty, **items}


@pytest.fixture
def service(cast: Cast, llm: FakeLLM, embedder: FakeEmbedder) -> MemoryService:
    llm.script("facts", FACTS)
    llm.script(
        "reflections",
        reflections(user=["Anna likes short answers."], session=["Anna plans a move."]),
    )
    llm.script("consolidate", lambda request: {"text": f"Text of {request.key[:-2]}."})
    return MemoryService(
        cast.store, SETTINGS, llm=llm, embedder=embedder, actor=ACTOR, clock=FixedClock()
    )


def talk(cast: Cast, count: int, *, start: float = 600, session: Any = None) -> None:
    session = session or cast.session
    cast.store.host.add_messages(
        session.id,
        make_messages(session, count, start=ago(minutes=start), sender=cast.anna.id),
    )


# -- forming -------------------------------------------------------------------------------------


async def test_nothing_is_formed_before_it_is_due(
    cast: Cast, service: MemoryService, llm: FakeLLM
) -> None:
    assert await service.maybe_form_memories(cast.session.id) == []
    talk(cast, 5)
    assert await service.maybe_form_memories(cast.session.id) == []
    (report,) = await service.form_memories(cast.session.id, trigger=Trigger.THRESHOLD)
    assert report.outcome == "not_due"
    assert llm.requests == []
    talk(cast, 1, start=10)
    (report,) = await service.maybe_form_memories(cast.session.id)
    assert (report.outcome, report.messages, report.facts_added) == ("applied", 6, 1)
    assert report.reflections == {"user": 1, "session": 1}
    assert [fact.content for fact in facts_of(cast.store, cast.anna_scope)] == [
        "Anna lives in Porto."
    ]
    assert await service.maybe_form_memories(cast.session.id) == []


async def test_the_end_of_a_session_forms_remaining_messages(
    cast: Cast, service: MemoryService
) -> None:
    talk(cast, 5)
    (report,) = await service.on_session_end(cast.session.id)
    assert (report.outcome, report.messages) == ("applied", 5)
    talk(cast, 4, start=20)
    (report,) = await service.process_cold_session(cast.session.id)
    assert (report.outcome, report.messages) == ("applied", 4)


def pending(cast: Cast, scope: Scope) -> list[Reflection]:
    return cast.store.memory.pending(scope)


async def test_the_end_of_a_session_consolidates_all_pending_reflections(
    cast: Cast, service: MemoryService
) -> None:
    talk(cast, 6)
    (report,) = await service.maybe_form_memories(cast.session.id)
    waiting = [scope for scope in (cast.anna_scope, cast.session_scope) if pending(cast, scope)]
    assert waiting
    assert report.consolidations == ()
    set_policy(cast.store, waiting[0], active=False)
    (report,) = await service.on_session_end(cast.session.id)
    assert report.outcome == "not_due"
    written = {each.scope for each in report.consolidations if each.outcome == "written"}
    assert written == set(waiting[1:])
    assert [bool(pending(cast, scope)) for scope in waiting] == [True, *[False] * len(waiting[1:])]


async def test_every_agent_of_a_session_forms_memories(
    cast: Cast, service: MemoryService, llm: FakeLLM
) -> None:
    adam = cast.add_agent("adam")
    cast.session = make_session([cast.eve, adam], [cast.anna], name="two")
    cast.store.host.put_session(cast.session)
    talk(cast, 6)
    reports = await service.maybe_form_memories(cast.session.id)
    assert [report.agent_id for report in reports] == [cast.eve.id, adam.id]
    for agent in (cast.eve, adam):
        assert len(facts_of(cast.store, Scope.user(agent.id, cast.anna.id))) == 1
    talk(cast, 6, start=30)
    (report,) = await service.maybe_form_memories(cast.session.id, agent_id=adam.id)
    assert report.agent_id == adam.id
    # the context of the first agent by default
    context = await service.get_memory_context(cast.session.id)
    assert context == await service.get_memory_context(cast.session.id, agent_id=cast.eve.id)


async def test_an_outage_for_one_agent_does_not_stop_the_other(
    cast: Cast, service: MemoryService, llm: FakeLLM
) -> None:
    adam = cast.add_agent("adam")
    cast.session = make_session([cast.eve, adam], [cast.anna], name="two")
    cast.store.host.put_session(cast.session)
    talk(cast, 6)
    llm.script(
        "facts", lambda request: ProviderRateLimited("429") if "/eve/" in request.key else FACTS
    )
    with pytest.raises(ProviderRateLimited):
        await service.maybe_form_memories(cast.session.id)
    assert facts_of(cast.store, cast.anna_scope) == []
    assert len(facts_of(cast.store, Scope.user(adam.id, cast.anna.id))) == 1


async def test_without_a_model_everything_but_formation_works(cast: Cast) -> None:
    service = MemoryService(cast.store, SETTINGS, actor=ACTOR, clock=FixedClock())
    assert not service.can_form
    talk(cast, 6)
    with pytest.raises(ConfigError, match="language model"):
        await service.maybe_form_memories(cast.session.id)
    add_fact(cast.store, cast.agent_scope, "The gate is teal.")
    assert "The gate is teal." in await service.get_memory_context(cast.session.id)
    found = await service.search(["gate"], agent_id=cast.eve.id)
    assert [hit.fact.content for hit in found.hits] == ["The gate is teal."]


async def test_end_to_end_on_every_store(
    store: Store, llm: FakeLLM, embedder: FakeEmbedder
) -> None:
    cast = make_cast(store)
    set_policy(store, cast.anna_scope, consolidate_at=1)
    llm.script("facts", FACTS)
    llm.script("reflections", reflections(user=["Anna is brief."], session=["Anna moves."]))
    llm.script("consolidate", {"text": "[STYLE]\n- brief"})
    service = MemoryService(
        store, SETTINGS, llm=llm, embedder=embedder, actor=ACTOR, clock=FixedClock()
    )
    assert await service.get_memory_context(cast.session.id) == "<MemoryContext/>"
    talk(cast, 6)
    (report,) = await service.maybe_form_memories(cast.session.id)
    assert [written.outcome for written in report.consolidations] == ["written"]
    context = await service.assemble_context(
        cast.session.id, message="Do you remember Porto?", recall="heuristic"
    )
    assert context.cached
    assert context.xml == (
        "<MemoryContext>\n"
        "  <UserMemory>\n"
        "    <Consolidated>VERSION: 1\n"
        "[STYLE]\n"
        "- brief</Consolidated>\n"
        "  </UserMemory>\n"
        "  <SessionMemory>\n"
        "    <RecentReflections>\n"
        "- Anna moves.\n"
        "    </RecentReflections>\n"
        "  </SessionMemory>\n"
        "  <Facts>\n"
        "- [user] Anna lives in Porto. (9h ago)\n"
        "  </Facts>\n"
        "</MemoryContext>"
    )
    assert "1 already in the context" in context.recall
    found = await service.search_facts(cast.session.id, ["Porto"])
    assert [hit.fact.content for hit in found.hits] == ["Anna lives in Porto."]
    await service.add_messages(
        cast.session.id, [make_message(cast.session, "Hello", sender=cast.bruno.id)]
    )
    group_chat = await service.get_memory_context(cast.session.id)
    assert "Porto" not in group_chat
    assert "brief" not in group_chat
    assert "Anna moves." in group_chat


# -- conversations -------------------------------------------------------------------------------


async def test_a_session_starts_with_a_fresh_context(cast: Cast, service: MemoryService) -> None:
    await service.assemble_context(cast.session.id)
    report = await service.on_session_start(cast.session.id)
    assert not report.cached
    assert (await service.assemble_context(cast.session.id)).cached


# -- consolidation, search, status ---------------------------------------------------------------


def pend(cast: Cast, scope: Scope, count: int) -> None:
    for number in range(count):
        add_reflection(cast.store, scope, f"Number {number}.", session_id=cast.session.id)


async def test_all_due_scopes_are_consolidated_and_may_be_narrowed(
    cast: Cast, service: MemoryService, llm: FakeLLM
) -> None:
    adam = cast.add_agent("adam")
    for scope in (cast.anna_scope, cast.bruno_scope, Scope.user(adam.id, cast.anna.id)):
        pend(cast, scope, 4)
    pend(cast, cast.agent_scope, 9)
    pend(cast, cast.session_scope, 4)

    async def scopes(**options: Any) -> set[Scope]:
        reports = await service.consolidate_all(dry_run=True, **options)
        assert {report.outcome for report in reports} <= {"dry_run"}
        return {report.scope for report in reports}

    anna, bruno = cast.anna_scope, cast.bruno_scope
    assert await scopes(agent_id=cast.eve.id) == {anna, bruno, cast.session_scope}
    assert await scopes(kinds=[ScopeKind.USER]) == {anna, bruno, Scope.user(adam.id, cast.anna.id)}
    assert await scopes(agent_id=cast.eve.id, user_id=cast.anna_on_discord.id) == {anna}
    assert await scopes(kinds=[ScopeKind.AGENT]) == set()
    assert await scopes(kinds=[ScopeKind.AGENT], force=True) == {cast.agent_scope}
    report = await service.consolidate(cast.agent_scope)
    assert report.outcome == "not_due"


async def test_an_agents_tool_sees_exactly_its_context(cast: Cast, service: MemoryService) -> None:
    add_fact(cast.store, cast.anna_scope, "Anna's gate is blue.")
    add_fact(cast.store, cast.bruno_scope, "Bruno's gate is red.")
    add_fact(cast.store, cast.agent_scope, "The gate is teal.")

    async def found(session_id: str, **options: Any) -> set[str]:
        report = await service.search_facts(session_id, ["gate"], **options)
        return {hit.fact.content for hit in report.hits}

    everyones = {"The gate is teal."}
    assert await found(cast.session.id) == everyones | {"Anna's gate is blue."}
    assert await found(cast.session.id, user_id=cast.bruno.id) == everyones
    chat = cast.add_session(cast.anna, cast.bruno)
    assert await found(chat.id) == everyones
    assert await found(chat.id, user_id=cast.anna.id) == everyones


# -- event loop ----------------------------------------------------------------------------------


async def test_a_slow_store_does_not_block_the_event_loop(
    cast: Cast, service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of = cast.store.host.session
    turns = 0

    def slow(session_id: str) -> Any:
        seen = turns
        deadline = time.monotonic() + 60
        while turns < seen + 5:  # until the event loop has turned
            assert time.monotonic() < deadline, "the event loop is blocked"
            time.sleep(0.001)
        return session_of(session_id)

    monkeypatch.setattr(cast.store.host, "session", slow)
    task = asyncio.create_task(service.get_memory_context(cast.session.id))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert task.result() == "<MemoryContext/>"


async def test_closing_closes_everything(
    open_store: Callable[[str], Store], llm: FakeLLM, embedder: FakeEmbedder
) -> None:
    async with MemoryService(open_store("sqlite"), SETTINGS, llm=llm, embedder=embedder) as service:
        assert service.can_form
    assert llm.closed
    assert embedder.closed


async def test_from_settings_opens_nothing_yet(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDENMEM_URI", f"sqlite:///{tmp_path}/memory.db")
    monkeypatch.setenv("EDENMEM_EMBEDDING_PROVIDER", "none")
    async with MemoryService.from_settings() as service:
        assert not service.can_form
        assert list(tmp_path.iterdir()) == []
        service.store.database.initialize()
        assert (tmp_path / "memory.db").exists()


async def test_an_edit_that_wrote_is_not_made_again_for_a_vector(cast: Cast) -> None:
    """An edit that needs a vector is rerun with it, so an earlier write would be doubled."""
    service = MemoryService(cast.store, Settings(), embedder=FakeEmbedder())
    scope = cast.agent_scope
    with pytest.raises(UsageError, match="the edit needs a vector after a write"):
        await service.edit(
            lambda edits: (edits.add_reflection(scope, "Short."), edits.add_fact(scope, "Late."))
        )
    assert [each.content for each in cast.store.memory.pending(scope)] == ["Short."]
    assert facts_of(cast.store, scope) == []
