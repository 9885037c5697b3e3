"""Undoing one change: refusals, forced undos, and crashes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from edenmem.engine.history.reader import fact_why, text_why
from edenmem.engine.history.undo import Undoer, UndoOutcome, undo_id
from edenmem.errors import NotFoundError, StoreError
from edenmem.models.changes import (
    AddFact,
    Change,
    ChangeSet,
    RemoveFact,
    RepairBuffer,
    SetAgentToggles,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from tests.faults.points import Fault, FaultyStore, Mode, Place, Switchboard
from tests.support.builders import (
    NOW,
    FixedClock,
    make_actor,
    make_agent,
    make_policy,
    revision,
    writing,
)
from tests.support.memory import add_fact, add_reflection, applied, apply_one, consolidate, facts_of
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

SCOPE = Scope.user(new_id(), new_id())
LATER = NOW + timedelta(hours=9)


@pytest.fixture
def undoer(store: Store) -> Undoer:
    return Undoer(make_runtime(store, actor=make_actor("undo"), clock=FixedClock(LATER)))


def entries(store: Store, action: str) -> list[str]:
    """Return the IDs of matching entries, oldest first."""
    return [entry.id for entry in store.log.audit(actions=[action])][::-1]


def pending(store: Store) -> list[str]:
    return [each.content for each in store.memory.pending(SCOPE)]


def text(store: Store) -> str:
    return store.memory.consolidations([SCOPE])[SCOPE].consolidated_content


def two_texts(store: Store) -> None:
    """Write two consolidations, an hour apart, and add a pending reflection."""
    first, second, _ = (
        add_reflection(store, SCOPE, name, formed_at=NOW + timedelta(minutes=place))
        for place, name in enumerate(("a", "b", "c"))
    )
    for version, each in enumerate((first, second)):
        at = NOW + timedelta(hours=version + 1)
        consolidate(
            store, SCOPE, f"T{version}", expected_version=version, absorbed_ids=[each.id], at=at
        )


def test_forced_all_that_went_into_later_texts_waits_again(store: Store, undoer: Undoer) -> None:
    """Known failure 16: what is in no text and in no buffer is lost."""
    two_texts(store)
    first, _ = entries(store, "write_consolidation")
    step = undoer.undo(first, force=True)
    assert (step.outcome, step.forced) == (UndoOutcome.DONE, True)
    assert (text(store), pending(store)) == ("", ["a", "b", "c"])
    assert [v.content for v in store.history.versions("consolidation", "", scope=SCOPE)] == [
        "T0",
        "T1",
        "",
    ]
    undoer.undo(step.undo_id)
    assert (text(store), pending(store)) == ("T1", ["c"])
    why = text_why(store, SCOPE)
    assert [(each.version.version, len(each.ingredients)) for each in why] == [
        (4, 2),
        (3, 0),
        (2, 1),
        (1, 1),
    ]
    assert why[3].taken_back_by == step.undo_id


def test_another_fact_with_the_same_text_blocks_the_undo(store: Store, undoer: Undoer) -> None:
    fact = add_fact(store, SCOPE, "one")
    change = revision(fact, "two", scope=SCOPE, reason="told so")
    applied(store, change)
    other = add_fact(store, SCOPE, "one")
    step = undoer.undo(change.id)
    assert (step.outcome, other.id in step.why) == (UndoOutcome.REFUSED, True)
    why = fact_why(store, fact.id)
    assert (why.replaced, why.changes[-1].reason) == (("one",), "told so")


def test_a_refused_undo_has_a_reason(store: Store, undoer: Undoer) -> None:
    with pytest.raises(NotFoundError):
        undoer.plan(new_id())
    add_reflection(store, SCOPE)
    assert apply_one(store, RepairBuffer(scope=SCOPE, at=NOW)).ok
    assert list(undoer.undo_run(new_id())) == []


@pytest.mark.parametrize("mode", [Mode.RAISE_BEFORE, Mode.RAISE_AFTER])
def test_an_undo_that_was_cut_off_is_completed_by_repeating_it(
    sqlite_store: Store, mode: Mode
) -> None:
    """Known failure 16: whether or not it was made, nothing is done twice."""
    two_texts(sqlite_store)
    fact = add_fact(sqlite_store, SCOPE, "one")
    removal = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW)
    applied(sqlite_store, removal)
    for target in (entries(sqlite_store, "write_consolidation")[-1], removal.id):
        store = FaultyStore(sqlite_store, Switchboard([Fault(Place("apply", 1), mode)]))
        undoer = Undoer(make_runtime(store, clock=FixedClock(LATER)))
        with pytest.raises(StoreError):
            undoer.undo(target)
        step = undoer.undo(target)
        wanted = UndoOutcome.DONE if mode is Mode.RAISE_BEFORE else UndoOutcome.ALREADY
        assert step.outcome is wanted
        assert sqlite_store.log.audit_entry(undo_id(target))
    assert (text(sqlite_store), pending(sqlite_store)) == ("T0", ["b", "c"])
    assert [each.content for each in facts_of(sqlite_store, SCOPE)] == ["one"]


def test_a_later_change_blocks_an_older_undo_although_the_states_are_equal(
    store: Store, undoer: Undoer
) -> None:
    """FAILURES 120: delete, restore, delete, undo the first; and the same with all other fields."""
    agent = make_agent("mira", user_memory_enabled=False)
    store.host.add_agent(agent)
    fact, other = (add_fact(store, SCOPE, content) for content in ("one", "other"))
    reflection = add_reflection(store, SCOPE)
    policies = [make_policy(SCOPE, word_limit=limit) for limit in (100, 200)]

    def remove(version: int) -> Change:
        return RemoveFact(scope=SCOPE, fact_id=other.id, expected_version=version, at=NOW)

    def revise(version: int, content: str) -> Change:
        return revision(fact, content, scope=SCOPE, expected_version=version)

    def hide(private: bool) -> Change:
        return SetPrivacy(
            scope=SCOPE, target_type="reflection", target_id=reflection.id, private=private, at=NOW
        )

    def toggle(is_on: bool) -> Change:
        return SetAgentToggles(agent_id=agent.id, user_memory_enabled=is_on, at=NOW)

    def write(version: int, content: str) -> Change:
        return writing(SCOPE, content, expected_version=version, word_limit=9)

    def limit(version: int) -> Change:
        policy = policies[version % 2]
        return WritePolicy(policy=policy, expected_version=version, at=NOW)

    restored = msgspec.structs.replace(other, version=2)
    for changes in (
        [revise(1, "two"), revise(2, "one"), revise(3, "two")],
        [remove(1), AddFact(fact=restored), remove(2)],
        [hide(True), hide(False), hide(True)],
        [toggle(True), toggle(False), toggle(True)],
        [write(0, "T"), write(1, "U"), write(2, "T")],
        [limit(0), limit(1), limit(2)],
    ):
        for hours, change in enumerate(changes):
            at = NOW + timedelta(hours=hours + 1)
            change = msgspec.structs.replace(
                change, **({"at": at} if hasattr(change, "at") else {})
            )
            context = ChangeSet(actor=make_actor(), at=at, changes=(change,))
            assert store.changes.apply(context)[0].ok, change
        first, _, last = changes
        for step in (undoer.plan(first.id), undoer.undo(first.id)):
            assert (step.outcome, step.forceable) == (UndoOutcome.REFUSED, True), first
            assert step.in_the_way[0].id == last.id
            assert "has changed since" in step.why
        assert undoer.undo(last.id).outcome is UndoOutcome.DONE
        redone = undoer.undo(undo_id(last.id))  # the last change is in force again
        assert redone.outcome is UndoOutcome.DONE
        again = undoer.plan(first.id)
        assert (again.outcome, again.in_the_way[0].id) == (UndoOutcome.REFUSED, redone.undo_id)
        forced = undoer.plan(first.id, force=True)
        assert (forced.outcome, forced.forced) == (UndoOutcome.PLANNED, True)
