"""A forgetting that was cut off at any write is completed by the same command: nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edenmem.errors import ConflictError, StoreError
from edenmem.models.changes import AddFact
from edenmem.models.forgetting import Compaction
from edenmem.settings.schema import StoreSettings
from edenmem.store.sqlite import SqliteStore
from tests.store.mongo.faults import Breaker, BreakingStore
from tests.support.builders import NOW, change_set, make_fact, make_formation
from tests.support.forgetting import Town, everything_but, fill, forget, make_town, plan_of
from tests.support.mongo_server import mongomock_client

_READS = ("find", "count", "aggregate", "distinct", "index_information", "estimated")


_COMPACTED = Compaction()


class _Cut(Exception):
    """The process died here."""


def _prepared(town: Town) -> None:
    fill(town)
    formation = make_formation(town.own, list(town.store.messages(town.own.id)))
    assert town.store.claim(formation)
    assert town.store.record(
        formation.id,
        worker="worker-1",
        changes=change_set(AddFact(fact=make_fact(town.her(), "She sells quince."))),
        decisions=(),
        usage=(),
        counts={},
        now=NOW,
    )


def _nothing_left(store: Any) -> None:
    assert not [p for p in store.passages() if "quince" in p.text.casefold()]
    assert set(plan_of(store, user="zenobia").counts) <= {"cached contexts"}
    (kept,) = store.forgettings()
    assert kept.closed_at is not None
    assert sum(1 for entry in store.audit() if entry.action == "forget") == 1


# -- SQLite ----------------------------------------------------------------------------------------


class _Writes:
    """Counts transactions, and cuts one off before it is committed, or right after."""

    def __init__(self, store: SqliteStore, at: int | None = None, *, after: bool = False) -> None:
        self.count = 0
        self._writing: Callable[[], Any] = store._db.writing
        self._at = at
        self._after = after
        store._db.writing = self.writing  # type: ignore[method-assign]

    @contextmanager
    def writing(self) -> Iterator[Any]:
        mine = self.count
        self.count += 1
        with self._writing() as connection:
            yield connection
            if mine == self._at and not self._after:
                raise _Cut
        if mine == self._at:
            raise _Cut


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forgetting") / "prepared.db"
    store = SqliteStore(path)
    store.initialise()
    _prepared(make_town(store))
    store.close()
    return path


def test_cut_off_at_any_transaction(prepared: Path, tmp_path: Path) -> None:
    def copied(name: str) -> SqliteStore:
        shutil.copy(prepared, tmp_path / name)
        store = SqliteStore(tmp_path / name)
        store.compact = lambda: _COMPACTED  # type: ignore[method-assign]
        return store

    store = copied("whole.db")
    plan = plan_of(store, user="zenobia")
    others = everything_but(store, plan)
    writes = _Writes(store)
    forget(store, user="zenobia")
    _nothing_left(store)
    whole = writes.count
    store.close()
    assert whole > 12
    for at in range(whole):
        store = copied(f"{at}.db")
        _Writes(store, at, after=at % 2 == 1)
        with pytest.raises(_Cut):
            forget(store, user="zenobia")
        assert forget(store, user="zenobia").complete
        _nothing_left(store)
        assert everything_but(store, plan) == others
        store.close()


# -- MongoDB ---------------------------------------------------------------------------------------


class _WriteBreaker(Breaker):
    def reach(self, what: str) -> None:
        if not what.split()[1].startswith(_READS) or "find_one_and" in what:
            super().reach(what)


def _mongo(breaker: Breaker | None) -> BreakingStore:
    store = BreakingStore(
        "mongodb://mongomock", StoreSettings(database="town"), client=mongomock_client()
    )
    store.breaker = Breaker()
    store.initialise()
    _prepared(make_town(store))
    store.breaker = breaker or _WriteBreaker()
    return store


def test_cut_off_at_any_write_to_mongodb() -> None:
    store = _mongo(None)
    forget(store, user="zenobia")
    points = store.breaker.points
    _nothing_left(store)
    assert points > 60
    for at in range(0, points, 7):  # before one write, after another: both come about
        store = _mongo(_WriteBreaker(at))
        with pytest.raises(StoreError):
            forget(store, user="zenobia")
        store.breaker = Breaker()
        try:
            report = forget(store, user="zenobia")
        except ConflictError:  # a change was cut off: it is seen, and settled when it is old
            store.finish_changes(before=NOW.replace(year=2100))
            report = forget(store, user="zenobia")
        assert report.complete, report
        _nothing_left(store)
