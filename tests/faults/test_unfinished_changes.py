"""A change that was cut off, and that nobody applies again, is settled by whoever looks after."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from edenmem.errors import StoreError
from edenmem.models.changes import RemoveReflection, ReviseFact
from edenmem.store.mongo import MongoStore
from tests.store.mongo.faults import Breaker, BreakingStore
from tests.store.mongo.test_faults import (
    CHANGES,
    FACTS,
    LATER,
    REFLECTIONS,
    SCOPE,
    Opener,
    _prepare,
    _state,
    open_mock,
)
from tests.support.builders import change_set

__all__ = ["open_mock"]  # a fixture

AFTER = LATER + timedelta(minutes=1)


def _broken(opener: Opener, changes: Any, point: int | None) -> tuple[Any, bool]:
    """A store in which the set broke off at a point; False if it came to its end."""
    store: Any = opener(BreakingStore, f"at{point}")
    _prepare(store)
    store.breaker = Breaker(at=point)
    try:
        store.apply(changes)
    except StoreError:
        return store, True
    return store, False


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_cut_off_anywhere_is_finished_or_withdrawn(open_mock: Opener, name: str) -> None:
    """Known failure 16, for changes that are written down nowhere."""
    changes = change_set(*CHANGES[name], at=LATER)
    whole, _ = _broken(open_mock, changes, None)
    points = whole.breaker.points
    wanted = _state(whole)
    for point in range(points):
        store, broke = _broken(open_mock, changes, point)
        assert broke
        where = store.breaker.log[-1]
        store.finish_changes(before=AFTER)
        entries = {entry.id: entry for entry in store.audit()}
        assert {entry.status for entry in entries.values()} <= {"done"}, where
        assert store.finish_changes(before=AFTER) == 0
        # Whoever wanted them decides anew: on what is there now, each change is made once.
        store.apply(changes)
        assert _state(store) == wanted, where


def test_a_change_that_somebody_is_at_work_on_is_left_alone(open_mock: Opener) -> None:
    (change,) = CHANGES["removal"]
    changes = change_set(change, at=LATER)
    whole, _ = _broken(open_mock, changes, None)
    point = whole.breaker.log.index("before delete_one memory2_facts")
    store, _ = _broken(open_mock, changes, point)
    assert store.finish_changes(before=LATER) == 0
    assert [entry.status for entry in store.audit(target_id=FACTS[3].id)][:1] == ["pending"]
    assert store.finish_changes(before=AFTER) == 1
    assert [entry.action for entry in store.audit(target_id=FACTS[3].id)] == ["add_fact"]


def test_one_who_was_at_work_all_the_same_loses_nothing(open_mock: Opener) -> None:
    """A writer that slept for longer than anybody should: its change is withdrawn under it."""
    change = ReviseFact(
        scope=SCOPE, fact_id=FACTS[0].id, expected_version=1, content="slowly", at=LATER
    )
    removal = RemoveReflection(
        scope=SCOPE, reflection_id=REFLECTIONS[1].id, expected_version=1, at=LATER
    )
    changes = change_set(change, removal, at=LATER)
    quick, _ = _broken(open_mock, changes, None)
    points = quick.breaker.points
    wanted = _state(quick)
    for point in range(points):
        store: Any = open_mock(_Interrupted, f"slow{point}")
        _prepare(store)
        store.breaker = _Interruption(store, at=point)
        assert all(result.ok for result in store.apply(changes))
        assert _state(store) == wanted, store.breaker.log[-1]


class _Interrupted(BreakingStore):
    """A store at one of whose commands the others settle what they take for abandoned."""


class _Interruption(Breaker):
    def __init__(self, store: MongoStore, at: int) -> None:
        super().__init__(at)
        self._store: Any = store

    def reach(self, what: str) -> None:
        point = self.points
        self.points += 1
        self.log.append(what)
        if point == self.at:
            mine, self._store.breaker = self._store.breaker, Breaker()
            self._store.finish_changes(before=AFTER)
            self._store.breaker = mine
