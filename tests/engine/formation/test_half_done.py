"""A formation whose facts are in memory and whose reflections wait: logged, undone and exported."""

from __future__ import annotations

import io
from collections.abc import Callable

from edenmem.engine.exchange.exporter import ExportRequest, export_records
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.importer import import_records
from edenmem.engine.history.undo import Undoer, UndoOutcome
from edenmem.models.formation import FormationStatus
from edenmem.store.protocol.store import Store
from tests.engine.formation.conftest import World, facts, reflections
from tests.support.builders import make_actor
from tests.support.llm import NONSENSE
from tests.support.memory import facts_of
from tests.support.runtime import make_runtime

LISBON, PORTO = "Anna Duarte lives in Lisbon.", "Anna Duarte works in Porto."
MOVES = "Anna Duarte moved lately."


async def leave_half_done(world: World) -> None:
    world.say("I live in Lisbon and work in Porto.")
    world.llm.script("facts", facts(LISBON, PORTO))
    world.llm.script("reflections", NONSENSE)
    await world.form()
    assert world.formation(FormationStatus.RELEASED).next_step == "reflections"
    world.llm.script("reflections", reflections(user=[MOVES]))


async def test_its_facts_are_in_the_log_and_one_that_is_undone_stays_away(world: World) -> None:
    await leave_half_done(world)
    logged = list(world.store.log.audit(actions=["add_fact"]))
    assert sorted(entry.target_id for entry in logged) == sorted(
        fact.id for fact in world.facts(world.cast.anna_scope)
    )
    [entry] = [each for each in logged if each.after and each.after["content"] == LISBON]
    undoer = Undoer(make_runtime(world.store, actor=make_actor("undo"), clock=world.clock))
    assert undoer.undo(entry.id).outcome is UndoOutcome.DONE
    done = await world.form_one()
    assert (done.outcome, done.facts_added, done.reflections) == ("applied", 0, {"user": 1})
    assert LISBON not in world.llm.requests_for("reflections")[-1].user
    assert world.contents(world.cast.anna_scope) == [PORTO]
    assert world.llm.tasks.count("facts") == 1


async def test_it_is_completed_where_its_backup_was_restored(
    world: World, open_store: Callable[[str], Store]
) -> None:
    await leave_half_done(world)
    file = io.BytesIO()
    export_records(world.store, file, ExportRequest(), clock=world.clock)
    elsewhere = open_store("sqlite")
    report = import_records(make_runtime(elsewhere, clock=world.clock), Source(file, "backup"))
    assert (report.failed, report.differing) == (0, 0)
    [waiting] = elsewhere.formations.list_formations()
    assert waiting == world.formation(FormationStatus.RELEASED)
    done = await world.form_one(store=elsewhere)
    assert (done.outcome, done.facts_added, done.reflections) == ("applied", 0, {"user": 1})
    scope = world.cast.anna_scope
    assert sorted(fact.content for fact in facts_of(elsewhere, scope)) == [LISBON, PORTO]
    assert [each.content for each in elsewhere.memory.pending(scope)] == [MOVES]
    assert world.llm.tasks.count("facts") == 1
