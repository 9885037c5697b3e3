"""FAILURES 108: everything imported was dated now, and a chat of 2023 was "(now)" in the prompt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.context.recall import Recaller
from edenmem.engine.context.xml import fact_line
from edenmem.engine.history.undo import Undoer
from edenmem.models.memory import FactTimes
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings
from tests.engine.formation.conftest import World, decision, decisions, fact, facts, reflections
from tests.support.builders import NOW
from tests.support.runtime import make_runtime

THEN = datetime(2023, 5, 1, 12, tzinfo=UTC)
LISBON = "Anna Duarte lives in Lisbon."


@pytest.fixture
def old_chat(world: World) -> World:
    """A chat of 2023, imported and formed today."""
    world.clock.now = THEN
    world.say("I am Anna Duarte, I live in Lisbon.", "The walk is near.")
    world.clock.now = NOW
    world.llm.script("facts", facts(fact(LISBON, sources=[1])))
    world.llm.script("reflections", reflections(user=["Anna likes it short."]))
    return world


async def test_a_chat_of_2023_is_from_2023(old_chat: World) -> None:
    world, store, scope = old_chat, old_chat.store, old_chat.cast.anna_scope
    await world.form_one()
    (stored,) = world.facts(scope)
    assert (stored.said_at, stored.formed_at) == (THEN + timedelta(minutes=1), NOW)
    assert "now" not in fact_line(stored, NOW)
    (reflection,) = store.memory.pending(scope)
    assert reflection.said_at == THEN + timedelta(minutes=2)

    runtime = make_runtime(store, Settings(), clock=world.clock)
    builder = ContextBuilder(runtime, recaller=Recaller(runtime, searcher=None))
    report = await builder.build(world.cast.session, world.cast.eve)
    assert LISBON not in report.xml  # older than a week

    year = timedelta(days=365)
    for bounds, found in (
        ({"until": THEN + year}, [LISBON]),
        ({"since": THEN + year}, []),
        ({"since": THEN}, [LISBON]),
    ):
        listed = store.memory.facts(FactFilter(scopes=(scope,), **bounds))
        assert [each.content for each in listed] == found


async def test_an_update_by_a_later_chat_is_dated_and_undone(old_chat: World) -> None:
    world, scope = old_chat, old_chat.cast.anna_scope
    await world.form_one()
    (first,) = world.facts(scope)
    world.clock.now = THEN + timedelta(days=30)
    world.say("I moved to Porto.")
    world.clock.now = NOW + timedelta(hours=1)
    world.llm.script("facts", facts(fact("Anna Duarte lives in Porto now.", sources=[1])))
    merged = "Anna Duarte lived in Lisbon and lives in Porto now."
    world.llm.script("dedup", decisions(decision(1, "UPDATE", 1, merged)))
    report = await world.form_one()
    (updated,) = world.facts(scope)
    assert (updated.id, updated.content) == (first.id, merged)
    moved = THEN + timedelta(days=30, minutes=1)
    assert (updated.times, updated.recent_at) == (FactTimes(moved), moved)
    assert updated.updated_at == NOW + timedelta(hours=1)

    assert report.facts_revised == 1
    undoer = Undoer(make_runtime(world.store, Settings(), clock=world.clock))
    (revision,) = world.store.log.audit(target_id=first.id, actions=["revise_fact"])
    undoer.undo(revision.id)
    (restored,) = world.facts(scope)
    assert (restored.content, restored.times) == (LISBON, first.times)
    assert restored.recent_at == first.said_at


async def test_a_message_from_the_future_is_dated_now(world: World) -> None:
    """A wrong clock does not keep a fact first for years."""
    world.clock.advance(days=900)
    world.say("I live in Lisbon.")
    world.clock.now = NOW
    world.llm.script("facts", facts(fact(LISBON, sources=[1])))
    await world.form_one()
    (stored,) = world.facts(world.cast.anna_scope)
    assert stored.said_at == NOW
