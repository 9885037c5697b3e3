"""Memory as of a moment."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from edenmem.models.changes import AddFact, RemoveReflection, ReviseReflection
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, removal, revision
from tests.support.memory import add_fact, add_reflection, applied, consolidate

AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())
OTHER = Scope.user(AGENT, new_id())


def hour(number: float) -> datetime:
    return NOW + timedelta(hours=number)


def revise(store: Store, fact: Fact, content: str, at: datetime, *, version: int = 1) -> None:
    change = revision(fact, content, expected_version=version, at=at)
    applied(store, change, at=at)


def remove(store: Store, fact: Fact, at: datetime, *, version: int = 1) -> None:
    change = removal(fact, expected_version=version, at=at)
    applied(store, change, at=at)


def contents(store: Store, moment: datetime, *scopes: Scope, limit: int = 99) -> list[str]:
    found = store.history.facts_at(scopes or (SCOPE,), moment, limit=limit)
    return [fact.content for fact in found]


def test_facts_are_as_of_the_moment(store: Store) -> None:
    one = add_fact(store, SCOPE, "one", formed_at=hour(0))
    two = add_fact(store, SCOPE, "two", formed_at=hour(1))
    revise(store, one, "one, revised", hour(2))
    remove(store, two, hour(3))
    add_fact(store, SCOPE, "three", formed_at=hour(4))
    revise(store, one, "one, revised again", hour(5), version=2)

    assert contents(store, hour(-0.5)) == []
    assert contents(store, hour(0.5)) == ["one"]
    assert contents(store, hour(1.5)) == ["two", "one"]
    assert contents(store, hour(2.5)) == ["one, revised", "two"]
    assert contents(store, hour(3.5)) == ["one, revised"]
    assert contents(store, hour(4.5)) == ["three", "one, revised"]
    assert contents(store, hour(5.5)) == ["one, revised again", "three"]
    assert contents(store, hour(5.5), limit=1) == ["one, revised again"]


def test_a_fact_as_it_was_has_its_version_and_times(store: Store) -> None:
    fact = add_fact(store, SCOPE, "one", formed_at=hour(0))
    revise(store, fact, "two", hour(1))
    revise(store, fact, "three", hour(2), version=2)
    remove(store, fact, hour(3), version=3)
    for moment, version in ((hour(0.5), 1), (hour(1.5), 2), (hour(2.5), 3)):
        (then,) = store.history.facts_at([SCOPE], moment, limit=9)
        assert (then.id, then.version) == (fact.id, version)
        assert then.formed_at == hour(0)
        assert then.recent_at == hour(version - 1)
        assert then.home == SCOPE


@pytest.mark.parametrize("version", [1, 2])
def test_a_restored_fact_is_missing_in_between(store: Store, version: int) -> None:
    """Undo restores the snapshot unchanged, whose own times do not tell that it was removed."""
    fact = add_fact(store, SCOPE, "one", formed_at=hour(0))
    remove(store, fact, hour(1))
    snapshot = store.history.versions("fact", fact.id)[-1].snapshot
    assert snapshot is not None
    if version == 2:
        snapshot = msgspec.structs.replace(snapshot, version=2, updated_at=hour(3))
    applied(store, AddFact(fact=snapshot), at=hour(3))
    assert contents(store, hour(0.5)) == ["one"]
    assert contents(store, hour(2)) == []
    assert contents(store, hour(3.5)) == ["one"]


def test_the_past_is_scoped(store: Store) -> None:
    """Known failure 31, in the past: history is filtered by scope, for deleted facts too."""
    mine = add_fact(store, SCOPE, "mine", formed_at=hour(0))
    theirs = add_fact(store, OTHER, "theirs", formed_at=hour(0))
    revise(store, theirs, "theirs, revised", hour(1))
    remove(store, theirs, hour(2), version=2)
    remove(store, mine, hour(2))
    for moment in (hour(0.5), hour(1.5)):
        assert contents(store, moment) == ["mine"]
    assert contents(store, hour(1.5), OTHER) == ["theirs, revised"]
    assert sorted(contents(store, hour(0.5), SCOPE, OTHER)) == ["mine", "theirs"]
    assert contents(store, hour(2.5), SCOPE, OTHER) == []


def test_the_buffer_is_as_of_the_moment(store: Store) -> None:
    made = [add_reflection(store, SCOPE, f"thought {n}", formed_at=hour(n)).id for n in range(4)]
    assert consolidate(
        store, SCOPE, "text", expected_version=0, absorbed_ids=made[:2], at=hour(2.5)
    ).ok
    add_reflection(store, OTHER, "theirs", formed_at=hour(0))

    def pending(moment: float) -> list[str]:
        return [reflection.id for reflection in store.history.pending_at(SCOPE, hour(moment))]

    assert pending(-1) == []
    assert pending(0.5) == made[:1]
    assert pending(2.25) == made[:3]
    assert pending(2.75) == made[2:3]
    assert pending(9) == made[2:]


def test_a_reflection_that_was_absorbed_and_then_removed_was_pending_before(store: Store) -> None:
    reflection = add_reflection(store, SCOPE, "thought", formed_at=hour(0))
    absorbed = [reflection.id]
    assert consolidate(
        store, SCOPE, "text", expected_version=0, absorbed_ids=absorbed, at=hour(1)
    ).ok
    change = RemoveReflection(
        scope=SCOPE, reflection_id=reflection.id, expected_version=1, at=hour(2)
    )
    applied(store, change, at=hour(2))
    (then,) = store.history.pending_at(SCOPE, hour(0.5))
    assert (then.id, then.content, then.absorbed) == (reflection.id, "thought", False)
    assert store.history.pending_at(SCOPE, hour(1.5)) == []
    assert store.history.pending_at(SCOPE, hour(2.5)) == []


def test_the_past_buffer_has_what_was_edited_and_removed_since(store: Store) -> None:
    edited = add_reflection(store, SCOPE, "first wording", formed_at=hour(0))
    removed = add_reflection(store, SCOPE, "removed later", formed_at=hour(1))
    same = {"scope": SCOPE, "reflection_id": edited.id}
    for number, content in ((2, "second wording"), (3, "third wording")):
        at = hour(number)
        change = ReviseReflection(expected_version=number - 1, content=content, at=at, **same)
        applied(store, change, at=at)
    same["reflection_id"] = removed.id
    applied(store, RemoveReflection(expected_version=1, at=hour(4), **same), at=hour(4))

    def pending(moment: float) -> list[str]:
        return [one.content for one in store.history.pending_at(SCOPE, hour(moment))]

    assert pending(0.5) == ["first wording"]
    assert pending(1.5) == ["first wording", "removed later"]
    assert pending(2.5) == ["second wording", "removed later"]
    assert pending(3.5) == ["third wording", "removed later"]
    assert pending(4.5) == ["third wording"]
    assert store.history.pending_at(SCOPE, hour(1.5))[1] == removed
