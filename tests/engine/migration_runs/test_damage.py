"""Verification after changes by other programs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edenmem.engine.migration.verification import verify
from edenmem.models.changes import RemoveFact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.engine.migration_runs.conftest import migrator
from tests.engine.migration_runs.listed import AGENT, USER, whole_plan
from tests.support.builders import NOW, FixedClock, change_set, make_agent, make_user

AGENTS = Scope.agent(AGENT)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("DELETE FROM facts", 2),
        ("DELETE FROM reflections", 6),
        ("UPDATE consolidations SET content = ''", 2),
        ("DELETE FROM policies", 1),
    ],
)
def test_a_moved_item_can_be_missing(
    sqlite_store: SqliteStore, clock: FixedClock, damage: str, lost: int
) -> None:
    sqlite_store.host.add_agent(make_agent("mira", id=AGENT))
    sqlite_store.host.add_user(make_user("anna", id=USER))
    plan = whole_plan()
    report = migrator(sqlite_store, clock)(plan)
    assert report.verification is not None
    assert report.verification.complete
    other = sqlite3.connect(Path(sqlite_store.database.info().location))
    other.execute("PRAGMA foreign_keys = OFF")
    other.execute(damage)
    other.commit()
    other.close()
    check = verify(sqlite_store, plan, report.run)
    assert (check.complete, check.differing, check.changed) == (False, lost, 0)
    assert "the log does not explain this" in check.differences[0].reason


def test_removed_memory_is_explained_by_the_log(
    sqlite_store: SqliteStore, clock: FixedClock
) -> None:
    sqlite_store.host.add_agent(make_agent("mira", id=AGENT))
    sqlite_store.host.add_user(make_user("anna", id=USER))
    plan = whole_plan()
    report = migrator(sqlite_store, clock)(plan)
    (fact,) = sqlite_store.memory.facts(FactFilter(scopes=(AGENTS,)))
    gone = RemoveFact(scope=AGENTS, fact_id=fact.id, expected_version=fact.version, at=NOW)
    sqlite_store.changes.apply(change_set(gone))
    check = verify(sqlite_store, plan, report.run)
    assert (check.complete, check.changed) == (True, 1)
