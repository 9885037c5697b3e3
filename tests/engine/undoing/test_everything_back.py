"""Whatever was done on a day, undoing all of it, newest first, gives the first state again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.history.inverses import UndoOutcome
from edenmem.engine.history.undo import Undoer
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from tests.engine.undoing.days import DEEDS, Day, remembered
from tests.support.builders import make_actor, make_agent

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


_deeds = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 10_000)), max_size=14)


def new_day(store: Store) -> Day:
    """A new agent with a little memory, in a store that others use."""
    agent = make_agent(f"agent-{new_id()}")
    assert store.add_agent(agent)
    day = Day(store, agent, (Scope.user(agent.id, new_id()), Scope.agent(agent.id)))
    day.live([("add fact", 1), ("add reflection", 2), ("add reflection", 3), ("consolidate", 4)])
    day.live([("add reflection", number) for number in range(5, 8)])
    day.run_id = new_id()
    day.actor = make_actor("test day", run_id=day.run_id)
    day.clock.advance(minutes=1)
    return day


def state(day: Day) -> dict[str, Any]:
    return remembered(day.store, day.agent, day.scopes)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@settings(max_examples=20)
@given(deeds=_deeds)
def test_undoing_each_entry_newest_first_gives_the_first_state(
    store: Store, deeds: list[tuple[str, int]]
) -> None:
    one_by_one(store, deeds)


@pytest.mark.parametrize("store", ["secantus"], indirect=True)
@settings(max_examples=4)
@given(deeds=_deeds)
def test_so_does_it_on_mongodb(store: Store, deeds: list[tuple[str, int]]) -> None:
    one_by_one(store, deeds)
    as_a_run(store, deeds)


def one_by_one(store: Store, deeds: list[tuple[str, int]]) -> None:
    day = new_day(store)
    first = state(day)
    made = day.live(deeds)
    then = state(day)
    day.clock.advance(minutes=1)
    undoer = Undoer(store, actor=make_actor("undo"), clock=day.clock)
    undone = []
    for change_id in reversed(made):
        step = undoer.undo(change_id)
        assert step.outcome in (UndoOutcome.DONE, UndoOutcome.ALREADY), step
        if step.outcome is UndoOutcome.DONE:
            undone.append(step.undo_id)
    assert state(day) == first
    # And that can be taken back, too: all is as it was at the end of the day.
    for change_id in reversed(undone):
        day.clock.advance(seconds=1)
        step = undoer.undo(change_id)
        assert step.outcome is UndoOutcome.DONE, step
    assert state(day) == then


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@settings(max_examples=20)
@given(deeds=_deeds)
def test_undoing_a_run_gives_the_first_state(store: Store, deeds: list[tuple[str, int]]) -> None:
    as_a_run(store, deeds)


def as_a_run(store: Store, deeds: list[tuple[str, int]]) -> None:
    day = new_day(store)
    first = state(day)
    made = day.live(deeds)
    then = state(day)
    day.clock.advance(minutes=1)
    runs = [new_id() for _ in range(2)]

    def undoer(run_id: str) -> Undoer:
        return Undoer(store, actor=make_actor("undo", run_id=run_id), clock=day.clock)

    planned = list(undoer(runs[0]).undo_run(day.run_id, dry_run=True))
    assert state(day) == then
    assert {step.entry.id for step in planned} == set(made)
    assert {step.outcome for step in planned} <= {UndoOutcome.PLANNED, UndoOutcome.ALREADY}
    done = list(undoer(runs[0]).undo_run(day.run_id))
    assert {step.entry.id for step in done} == set(made)
    assert {step.outcome for step in done} <= {UndoOutcome.DONE, UndoOutcome.ALREADY}
    assert state(day) == first
    again = list(undoer(new_id()).undo_run(day.run_id))
    assert {step.outcome for step in again} <= {UndoOutcome.ALREADY}
    assert state(day) == first
    day.clock.advance(minutes=1)
    redone = list(undoer(runs[1]).undo_run(runs[0]))
    assert {step.outcome for step in redone} <= {UndoOutcome.DONE}
    assert state(day) == then


def test_the_days_do_all_that_can_be_done(open_store: Callable[[str], Store]) -> None:
    """The tests above would say nothing of what never happens."""
    store = open_store("sqlite")
    day = new_day(store)
    day.live([(deed, choice) for choice in range(9) for deed in DEEDS])
    assert {entry.action for entry in store.audit()} == {
        *("add_fact", "revise_fact", "remove_fact", "set_privacy", "set_agent_toggles"),
        *("add_reflection", "revise_reflection", "remove_reflection", "write_consolidation"),
        *("write_policy", "remove_policy", "add_agent", "add_user"),
    }
