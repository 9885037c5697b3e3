"""Undoing one thing: what is refused, what is forced, and what a crash leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from edenmem.engine.history.inverses import UndoOutcome
from edenmem.engine.history.undo import Undoer, undo_id
from edenmem.engine.history.why import fact_why, text_why
from edenmem.errors import NotFoundError, StoreError
from edenmem.models.changes import RemoveFact, RepairBuffer, ReviseFact
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import StoreSettings
from tests.store.mongo.faults import Breaker, BreakingStore
from tests.support.builders import ACTOR, NOW, FixedClock, make_actor
from tests.support.memory import add_fact, add_reflection, applied, apply_one, consolidate
from tests.support.mongo_server import mongomock_client

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

SCOPE = Scope.user(new_id(), new_id())
LATER = NOW + timedelta(hours=9)


@pytest.fixture
def undoer(store: Store) -> Undoer:
    return Undoer(store, actor=make_actor("undo"), clock=FixedClock(LATER))


def entries(store: Store, action: str) -> list[str]:
    """The ids of such entries, oldest first."""
    return [entry.id for entry in store.audit(actions=[action])][::-1]


def pending(store: Store) -> list[str]:
    return [each.content for each in store.pending(SCOPE)]


def text(store: Store) -> str:
    return store.consolidations([SCOPE])[SCOPE].consolidated_content


def two_texts(store: Store) -> None:
    """Two consolidations, an hour apart, and one reflection that waits."""
    first, second, _ = (
        add_reflection(store, SCOPE, name, formed_at=NOW + timedelta(minutes=place))
        for place, name in enumerate(("a", "b", "c"))
    )
    for version, each in enumerate((first, second)):
        at = NOW + timedelta(hours=version + 1)
        consolidate(
            store, SCOPE, f"T{version}", expected_version=version, absorbed_ids=[each.id], at=at
        )


def test_a_consolidation_under_a_later_one_is_refused_and_named(
    store: Store, undoer: Undoer
) -> None:
    two_texts(store)
    first, second = entries(store, "write_consolidation")
    step = undoer.undo(first)
    assert (step.outcome, step.forceable) == (UndoOutcome.REFUSED, True)
    assert [each.id for each in step.in_the_way] == [second]
    assert (text(store), pending(store)) == ("T1", ["c"])


def test_forced_all_that_went_into_later_texts_waits_again(store: Store, undoer: Undoer) -> None:
    """Known failure 16: what is in no text and in no buffer is lost."""
    two_texts(store)
    first, _ = entries(store, "write_consolidation")
    step = undoer.undo(first, force=True)
    assert (step.outcome, step.forced) == (UndoOutcome.DONE, True)
    assert (text(store), pending(store)) == ("", ["a", "b", "c"])
    assert [v.content for v in store.history("consolidation", "", scope=SCOPE)] == ["T0", "T1", ""]
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


def test_a_reflection_that_was_consolidated_since_names_its_text(
    store: Store, undoer: Undoer
) -> None:
    two_texts(store)
    step = undoer.plan(entries(store, "add_reflection")[0])
    assert step.outcome is UndoOutcome.REFUSED
    assert [each.id for each in step.in_the_way] == entries(store, "write_consolidation")[:1]


def test_a_fact_that_was_removed_comes_back_with_its_vector(store: Store, undoer: Undoer) -> None:
    vector = b"\0\0\x80?" * 2
    fact = add_fact(store, SCOPE, "one", embedding=vector, embedding_model="m")
    applied(store, RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW))
    assert undoer.undo(entries(store, "remove_fact")[0]).outcome is UndoOutcome.DONE
    back = store.fact(fact.id, with_vector=True)
    assert back is not None
    assert (back.content, back.embedding, back.embedding_model) == ("one", vector, "m")


def test_a_text_that_another_fact_has_by_now_stands_in_the_way(
    store: Store, undoer: Undoer
) -> None:
    fact = add_fact(store, SCOPE, "one")
    change = ReviseFact(
        scope=SCOPE, fact_id=fact.id, expected_version=1, content="two", at=NOW, reason="told so"
    )
    applied(store, change)
    other = add_fact(store, SCOPE, "one")
    step = undoer.undo(change.id)
    assert (step.outcome, other.id in step.why) == (UndoOutcome.REFUSED, True)
    why = fact_why(store, fact.id)
    assert (why.replaced, why.changes[-1].reason) == (("one",), "told so")


def test_what_cannot_be_undone_says_why(store: Store, undoer: Undoer) -> None:
    with pytest.raises(NotFoundError):
        undoer.plan(new_id())
    add_reflection(store, SCOPE)
    assert apply_one(store, RepairBuffer(scope=SCOPE, at=NOW)).ok
    assert list(undoer.undo_run(new_id())) == []


def test_an_undo_that_was_cut_off_is_completed_by_repeating_it() -> None:
    """Known failure 16: at every command of the database, nothing is done twice."""
    client = mongomock_client()

    def prepared(name: str) -> tuple[BreakingStore, list[str]]:
        store = BreakingStore("mongodb://mock", StoreSettings(database=name), client=client)
        store.initialise()
        two_texts(store)
        fact = add_fact(store, SCOPE, "one")
        applied(store, RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW))
        consolidation = entries(store, "write_consolidation")[-1]
        return store, [consolidation, entries(store, "remove_fact")[0]]

    def outcome(store: Store) -> object:
        facts = [(fact.content, fact.version) for fact in store.facts_at([SCOPE], LATER, limit=9)]
        done = sorted((each.action, each.status) for each in store.audit())
        return text(store), pending(store), facts, done

    def undo_all(store: Store, targets: list[str]) -> None:
        undoer = Undoer(store, actor=ACTOR, clock=FixedClock(LATER))
        for target in targets:
            step = undoer.undo(target)
            assert step.outcome in (UndoOutcome.DONE, UndoOutcome.ALREADY), step

    whole, targets = prepared("whole")
    whole.breaker = Breaker()
    undo_all(whole, targets)
    points, wanted = whole.breaker.points, outcome(whole)
    assert wanted[:2] == ("T0", ["b", "c"])  # type: ignore[index]
    for point in range(0, points, 3):
        store, targets = prepared(f"at{point}")
        store.breaker = Breaker(at=point)
        with pytest.raises(StoreError):
            undo_all(store, targets)
        where = store.breaker.log[-1]
        undo_all(store, targets)
        assert outcome(store) == wanted, where
        assert all(store.audit_entry(undo_id(target)) for target in targets), where
