"""A forgetting interrupted at any write is completed by the same command."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.erasure.passages import walk_passages
from edenmem.engine.erasure.reports import ForgetPlan, ForgetReport, MentionDecision, MentionMode
from edenmem.engine.seals.sealer import Sealer
from edenmem.errors import StoreError
from edenmem.models.backup import RecordKind, StoredMessage
from edenmem.models.changes import AddFact, RemoveFact, merge_reason
from edenmem.models.forgetting import Compaction
from edenmem.models.formation import Decision
from edenmem.store.mongo import MongoStore
from edenmem.store.sqlite import SqliteStore
from tests.store.mongo.faults import Breaker, Template, wrapped_store
from tests.support.builders import NOW, change_set, make_fact, make_formation
from tests.support.exhaustive import sample
from tests.support.forgetting import (
    Town,
    everything_but,
    fill,
    forget,
    forgetter,
    make_town,
    plan_of,
)
from tests.support.formations import Steps
from tests.support.leak import SECRET, make_leak, revise
from tests.support.llm import FakeLLM
from tests.support.memory import add_fact, applied, consolidate
from tests.support.runtime import make_runtime

pytestmark = pytest.mark.slow


_READS = ("find", "count", "aggregate", "distinct", "index_information", "estimated")


_COMPACTED = Compaction()


class _Cut(Exception):
    """The process died here."""


def _prepared(town: Town) -> None:
    fill(town)
    hers = {"session_id": town.own.id}
    add_fact(town.store, town.everybody, "Quince trees bloom in May.", **hers)
    (up,) = (one for one in town.store.memory.pending(town.everybody) if "uince" in one.content)
    shown = {"expected_version": 1, "absorbed_ids": [up.id]}
    consolidate(town.store, town.everybody, "Doors are wide. Quince is in demand.", **shown)
    formation = make_formation(town.own, list(town.store.host.messages(town.own.id)))
    assert town.store.formations.claim(formation)
    assert Steps(town.store).record(
        formation.id, changes=change_set(AddFact(fact=make_fact(town.her(), "She sells quince.")))
    )
    Sealer(make_runtime(town.store)).seal()


def _forget(store: Any) -> ForgetReport:
    """Forget her, with the texts that absorbed her memory, and what she taught."""
    llm = FakeLLM({"forget": {"text": "Doors are wide."}})
    plan = plan_of(store, user="zenobia")
    modes = MentionMode.REWRITE, MentionMode.REMOVE
    decisions = []
    for mention in plan.mentions:
        how = mention.treatment(mention.mode(*modes))
        decision = MentionDecision(mention=mention, treatment=how)
        if how == "rewrite":
            decision = asyncio.run(forgetter(store, llm=llm).draft(plan, mention))
        decisions.append(decision)
    return forget(store, decisions, plan=plan)


def _outcome(store: Any, plan: ForgetPlan) -> dict[str, Any]:
    """The remaining memory of others; of concurrent writes only the texts."""
    left = everything_but(store, plan)
    del left["audit"], left["history"]
    sessions = store.walk.documents([RecordKind.SESSION])
    left["progress"] = {one.id: one.record.last_memory_message_id for one in sessions}
    left["passages"] = sorted({(p.kind, p.text) for p in walk_passages(store)})
    return left


def _nothing_left(store: Any) -> None:
    assert not [p for p in walk_passages(store) if "quince" in p.text.casefold()]
    assert set(plan_of(store, user="zenobia").counts) <= {"cached contexts"}
    (kept,) = store.erasure.forgettings()
    assert kept.closed_at is not None
    assert sum(1 for entry in store.log.audit() if entry.action == "forget") == 1
    sealer = Sealer(make_runtime(store))
    sealer.seal()
    assert not sealer.verify().problems


# -- single facts ----------------------------------------------------------------------------------


def _leak(store: Any) -> tuple[str, str]:
    """Two facts with secrets, one of them deleted, and copies of their texts; returns their IDs.

    The first fact can be named by a prefix.
    """
    leak = make_leak(store)
    same = add_fact(store, leak.town.everybody, SECRET)
    revise(store, same, "The safe is green.")
    merged = add_fact(store, leak.fact.home, "It opens with quinces.")
    reason = merge_reason(leak.fact.id)
    applied(
        store,
        RemoveFact(scope=merged.home, fact_id=merged.id, expected_version=1, at=NOW, reason=reason),
    )
    deleted = add_fact(store, leak.town.group, "The quince jam is in the shed.")
    removal = {"scope": leak.town.group, "fact_id": deleted.id, "expected_version": 1, "at": NOW}
    applied(store, RemoveFact(**removal))
    add_fact(store, leak.town.group, f"Note: {SECRET}")
    formation = make_formation(leak.town.lone, list(leak.sources), seq=2)
    assert Steps(store).supersede(leak.formation_id, now=NOW)
    assert store.formations.claim(formation)
    again = change_set(AddFact(fact=make_fact(leak.town.his(), SECRET)))
    assert Steps(store).record(
        formation.id, changes=again, decisions=(Decision(content=SECRET, action="NONE"),)
    )
    return leak.fact.id[:18], deleted.id


def _forget_facts(store: Any, ids: tuple[str, str]) -> ForgetReport:
    """Forget the facts, and remove what repeats them."""
    plan = plan_of(store, facts=ids)
    decisions = [
        MentionDecision(mention=one, treatment="remove") for one in plan.mentions if not one.emptied
    ]
    return forget(store, decisions, plan=plan)


def _check_facts(store: Any, report: ForgetReport) -> None:
    assert report.complete, report
    assert not [p for p in walk_passages(store) if "quince" in p.text.casefold()]
    (kept,) = store.erasure.forgettings()
    assert kept.closed_at is not None
    assert sum(1 for entry in store.log.audit() if entry.action == "forget") == 1
    marked = [
        message.record.content
        for message in store.walk.documents([RecordKind.MESSAGE])
        if isinstance(message.record, StoredMessage) and message.record.forgotten
    ]
    assert len(marked) == 2, marked


def _copied(path: Path, target: Path) -> SqliteStore:
    """A store on a copy of the file; it takes no time to compact."""
    shutil.copy(path, target)
    store = SqliteStore(target)
    store.database.compact = lambda: _COMPACTED  # type: ignore[method-assign]
    return store


def test_interruption_of_forgetting_facts_at_any_transaction(tmp_path: Path) -> None:
    path = tmp_path / "prepared.db"
    store = SqliteStore(path)
    store.database.initialize()
    ids = _leak(store)
    store.database.close()

    store = _copied(path, tmp_path / "whole.db")
    writes = _Writes(store)
    _check_facts(store, _forget_facts(store, ids))
    whole = writes.count
    store.database.close()
    assert whole > 12
    for at in sample(range(whole), 4):
        store = _copied(path, tmp_path / f"{at}.db")
        _Writes(store, at, after=at % 2 == 1)
        with pytest.raises(_Cut):
            _forget_facts(store, ids)
        _check_facts(store, _forget_facts(store, ids))
        store.database.close()


def test_interruption_of_forgetting_facts_in_mongodb(
    open_store: Callable[[str], MongoStore],
) -> None:
    """FAILURES 119: the marks of the source messages were written last, and lost with a kill."""
    mongo = open_store("secantus")
    ids = _leak(mongo)
    template = Template(mongo.connection.database)

    def opened(breaker: Breaker) -> MongoStore:
        return wrapped_store(mongo, breaker.around)

    breaker = _WriteBreaker()
    _check_facts(mongo, _forget_facts(opened(breaker), ids))
    assert breaker.points > 40
    marks = next(at for at, what in enumerate(breaker.log) if "forgotten_messages" in what)
    for at in (marks, *sample(range(3, breaker.points - 2, 9), 6)):  # a failed seal is reported
        template.restore()
        with pytest.raises(StoreError):
            _forget_facts(opened(_WriteBreaker(at)), ids)
        _check_facts(mongo, _forget_facts(mongo, ids))


# -- SQLite ----------------------------------------------------------------------------------------


class _Writes:
    """Counts transactions, and interrupts one before its commit or right after."""

    def __init__(self, store: SqliteStore, at: int | None = None, *, after: bool = False) -> None:
        self.count = 0
        self._writing: Callable[[], Any] = store.connections.writing
        self._at = at
        self._after = after
        store.connections.writing = self.writing  # type: ignore[method-assign]

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
    store.database.initialize()
    _prepared(make_town(store))
    store.database.close()
    return path


def test_interruption_at_any_transaction(prepared: Path, tmp_path: Path) -> None:
    store = _copied(prepared, tmp_path / "whole.db")
    plan = plan_of(store, user="zenobia")
    writes = _Writes(store)
    assert _forget(store).complete
    _nothing_left(store)
    outcome = _outcome(store, plan)
    whole = writes.count
    store.database.close()
    assert whole > 12
    for at in sample(range(whole), 4):
        store = _copied(prepared, tmp_path / f"{at}.db")
        _Writes(store, at, after=at % 2 == 1)
        with pytest.raises(_Cut):
            _forget(store)
        assert _forget(store).complete
        _nothing_left(store)
        assert _outcome(store, plan) == outcome, at
        store.database.close()


# -- MongoDB ---------------------------------------------------------------------------------------


class _WriteBreaker(Breaker):
    def reach(self, what: str) -> None:
        if not what.split()[1].startswith(_READS) or "find_one_and" in what:
            super().reach(what)


def test_interruption_at_any_write_to_mongodb(open_store: Callable[[str], MongoStore]) -> None:
    mongo = open_store("secantus")
    _prepared(make_town(mongo))
    template = Template(mongo.connection.database)

    def opened(breaker: Breaker) -> MongoStore:
        return wrapped_store(mongo, breaker.around)

    breaker = _WriteBreaker()
    store = opened(breaker)
    assert _forget(store).complete
    points = breaker.points
    _nothing_left(store)
    assert points > 60
    for at in sample(range(5, points, 31), 3):
        template.restore()
        with pytest.raises(StoreError):
            _forget(opened(_WriteBreaker(at)))
        report = _forget(mongo)
        assert report.complete, report
        _nothing_left(mongo)
