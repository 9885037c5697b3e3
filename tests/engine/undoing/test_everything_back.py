"""Undoing all changes of a day restores the initial state, and a dry run predicts it.

The undo and redo of single entries is tested without a store in `tests.memory`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from edenmem.engine.history import undo
from edenmem.engine.history.undo import Undoer, UndoOutcome, UndoStep
from edenmem.models.changes import (
    AddFact,
    Change,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
    SetPrivacy,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from tests.engine.undoing.days import DEEDS, Day, remembered
from tests.support.builders import make_actor, make_agent, make_fact
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


_deeds = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 10_000)), max_size=14)


@pytest.fixture(scope="module", autouse=True)
def pages() -> Iterator[None]:
    """Set pages so small that a day has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undo, "PAGE", 5)
        yield


def new_day(store: Store) -> Day:
    """Return a new agent with some memory, in a shared store."""
    agent = make_agent(f"agent-{new_id()}")
    assert store.host.add_agent(agent)
    day = Day(store, agent, (Scope.user(agent.id, new_id()), Scope.agent(agent.id)))
    day.live([("add fact", 1), ("add reflection", 2), ("add reflection", 3), ("consolidate", 4)])
    day.live([("add reflection", number) for number in range(5, 8)])
    begin_run(day)
    return day


def begin_run(day: Day) -> str:
    """Start a new run for later changes."""
    day.run_id = new_id()
    day.actor = make_actor("test day", run_id=day.run_id)
    day.clock.advance(minutes=1)
    return day.run_id


def state(day: Day) -> dict[str, Any]:
    return remembered(day.store, day.agent, day.scopes)


def undoer(day: Day, run_id: str = "") -> Undoer:
    return Undoer(
        make_runtime(
            day.store, actor=make_actor("undo", run_id=run_id or new_id()), clock=day.clock
        )
    )


def words(step: UndoStep) -> tuple[object, ...]:
    """Return the fields of a step without times and documents."""
    outcome = step.outcome.value.replace("planned", "done")
    others = [each.id for each in step.in_the_way]
    flags = step.forced, step.forceable
    return step.entry.id, outcome, step.undo_id, step.why, step.notices, others, step.more, flags


def undo_all(day: Day, run_id: str, *, by: str = "", force: bool = False) -> list[UndoStep]:
    """Undo a run, and compare the steps with a dry run."""
    before = state(day)
    planned = list(undoer(day).undo_run(run_id, force=force, dry_run=True))
    assert state(day) == before
    done = list(undoer(day, by).undo_run(run_id, force=force))
    assert [words(step) for step in planned] == [words(step) for step in done]
    day.clock.advance(minutes=1)
    return done


def there_and_back(store: Store, deeds: list[tuple[str, int]]) -> None:
    day = new_day(store)
    first = state(day)
    made = day.live(deeds)
    then = state(day)
    day.clock.advance(minutes=1)
    runs = [new_id() for _ in range(2)]
    done = undo_all(day, day.run_id, by=runs[0])
    assert {step.entry.id for step in done} == set(made)
    assert {step.outcome for step in done} <= {UndoOutcome.DONE, UndoOutcome.ALREADY}
    assert state(day) == first
    again = undo_all(day, day.run_id)
    assert {step.outcome for step in again} <= {UndoOutcome.ALREADY}
    assert state(day) == first
    redone = undo_all(day, runs[0], by=runs[1])
    assert {step.outcome for step in redone} <= {UndoOutcome.DONE}
    assert state(day) == then


def among_others(store: Store, deeds: list[tuple[str, int]], since: list[tuple[str, int]]) -> None:
    day = new_day(store)
    run_id = day.run_id
    day.live(deeds)
    begin_run(day)
    day.live(since)
    day.clock.advance(minutes=1)
    undo_all(day, run_id)
    undo_all(day, run_id, force=True)


def lives_in_one_set(store: Store, steps: list[tuple[bool, str]], seed: int) -> None:
    """Undo one set of changes to an existing and a new fact, with IDs in random order."""
    day = new_day(store)
    scope = day.scopes[0]
    old = make_fact(scope, "it was there before", id=new_id(), private=True)
    add_facts(store, old)
    begin_run(day)
    first = state(day)
    facts = [old, make_fact(scope, "it is new", id=new_id())]
    present = [True, False]
    changes: list[Change] = []
    ids = [new_id() for _ in steps]
    random.Random(seed).shuffle(ids)
    for change_id, (is_new, deed) in zip(ids, steps, strict=True):
        fact = facts[is_new]
        if present[is_new] == (deed == "add"):
            continue
        named = {"id": change_id, "scope": scope}
        at = day.clock()
        version = {"fact_id": fact.id, "expected_version": fact.version, "at": at}
        if deed == "add":
            changes.append(AddFact(id=change_id, fact=fact))
            present[is_new] = True
        elif deed == "remove":
            changes.append(RemoveFact(**named, **version))
            present[is_new] = False
        elif deed == "hide":
            fact = replace(fact, private=not fact.private)
            changes.append(
                SetPrivacy(
                    **named, target_type="fact", target_id=fact.id, private=fact.private, at=at
                )
            )
        else:
            content = fact.content + "!"
            changes.append(ReviseFact(**named, **version, content=content))
            fact = replace(
                fact, content=content, hash=content_hash(content), version=fact.version + 1
            )
        facts[is_new] = fact
    results = store.changes.apply(
        ChangeSet(actor=day.actor, at=day.clock(), changes=tuple(changes))
    )
    assert all(each.status is ChangeStatus.APPLIED for each in results)
    day.clock.advance(minutes=1)
    done = undo_all(day, day.run_id)
    assert {step.outcome for step in done} <= {UndoOutcome.DONE}, [*done]
    assert state(day) == first
    again = undo_all(day, day.run_id)
    assert {step.outcome for step in again} <= {UndoOutcome.ALREADY}
    assert state(day) == first


_steps = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["add", "remove", "revise", "hide"])), max_size=16
)
_seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@settings(max_examples=15)
@given(steps=_steps, seed=_seeds)
@example(steps=[(False, deed) for deed in ("hide", "remove", "add", "hide")], seed=1)
def test_a_fact_may_come_and_go_in_one_set(
    store: Store, steps: list[tuple[bool, str]], seed: int
) -> None:
    """Known failure: what was removed and added again in one set was gone after the undo.

    The order of a set's entries was guessed from versions and marks, and not always right.
    """
    lives_in_one_set(store, steps, seed)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@settings(max_examples=10)
@given(deeds=_deeds)
def test_undoing_a_run_restores_the_initial_state(
    store: Store, deeds: list[tuple[str, int]]
) -> None:
    there_and_back(store, deeds)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
@settings(max_examples=12)
@given(deeds=_deeds, since=_deeds)
@example(deeds=[("mark fact", 1), ("revise fact", 3)], since=[("add fact", 1)])
def test_a_dry_run_says_what_will_happen_after_others_went_on(
    store: Store, deeds: list[tuple[str, int]], since: list[tuple[str, int]]
) -> None:
    """Known failure 78: the dry run counted what the run then refused."""
    among_others(store, deeds, since)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["secantus"], indirect=True)
@settings(max_examples=2)
@given(deeds=_deeds, since=_deeds)
def test_so_does_it_on_mongodb(
    store: Store, deeds: list[tuple[str, int]], since: list[tuple[str, int]]
) -> None:
    there_and_back(store, deeds)
    among_others(store, deeds, since)


@pytest.mark.parametrize("store", ["secantus"], indirect=True)
@settings(max_examples=3)
@given(steps=_steps, seed=_seeds)
def test_so_may_it_on_mongodb(store: Store, steps: list[tuple[bool, str]], seed: int) -> None:
    lives_in_one_set(store, steps, seed)


def test_the_days_make_all_kinds_of_changes(open_store: Callable[[str], Store]) -> None:
    """The tests above cover only changes that occur."""
    store = open_store("sqlite")
    day = new_day(store)
    day.live([(deed, choice) for choice in range(9) for deed in DEEDS])
    assert {entry.action for entry in store.log.audit()} == {
        *("add_fact", "revise_fact", "remove_fact", "set_privacy", "set_agent_toggles"),
        *("add_reflection", "revise_reflection", "remove_reflection", "write_consolidation"),
        *("write_policy", "remove_policy", "add_agent", "add_user"),
    }
