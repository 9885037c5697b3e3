"""The ledger of migrations: schema steps, runs and leases."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from edenmem.errors import ConflictError
from edenmem.models.changes import AddReflection
from edenmem.models.ids import new_id
from edenmem.models.migration import MigrationRun, RunProblem, RunState
from edenmem.models.scope import Scope
from edenmem.store.common import migrations
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, make_actor, make_reflection
from tests.support.memory import applied
from tests.support.schema_steps import add_steps

NAMES = [step.name for step in migrations.migrations()]


def make_run(**fields: object) -> MigrationRun:
    run_id = new_id()
    defaults = {
        "id": run_id,
        "source": "a folder",
        "actor": make_actor("migrate v1", run_id=run_id),
        "started_at": NOW,
        "updated_at": NOW,
    }
    return msgspec.convert({**defaults, **fields}, MigrationRun)


def test_a_new_store_has_every_step_applied(store: Store) -> None:
    steps = store.migrations.schema()
    assert [step.name for step in steps] == NAMES
    assert all(step.applied_at is not None for step in steps)
    assert store.database.info().schema_version == str(steps[-1].number)
    assert list(store.migrations.migrate_up()) == []
    assert store.migrations.schema() == steps


def test_steps_are_applied_reverted_and_reapplied(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = add_steps(monkeypatch, tmp_path)
    for _ in range(2):
        pending = [step.name for step in store.migrations.schema() if step.applied_at is None]
        assert pending == names
        assert list(store.migrations.migrate_up()) == names
        assert not [step for step in store.migrations.schema() if step.applied_at is None]
        assert list(store.migrations.migrate_down(2)) == names[1:]
        assert list(store.migrations.migrate_down(1)) == names[:1]


def test_an_irreversible_step_stays(store: Store) -> None:
    with pytest.raises(ConflictError, match="irreversible: 0001_initial"):
        store.migrations.migrate_down(0)
    assert all(step.applied_at is not None for step in store.migrations.schema())


def test_the_last_state_of_a_run_is_stored(store: Store) -> None:
    run = make_run(
        options={"agents": [new_id()], "shards": "keep"},
        counts={"migrated": 7},
        problems=[RunProblem(source="memory_user/1", reason="\x1b[31mno text")],
        finished_at=NOW,
    )
    store.migrations.put_migration_run(run)
    assert store.migrations.migration_runs() == [run]
    done = msgspec.structs.replace(run, state=RunState.DONE, counts={"migrated": 9, "bad": 1})
    store.migrations.put_migration_run(done)
    later = make_run(started_at=NOW + timedelta(hours=1))
    store.migrations.put_migration_run(later)
    assert store.migrations.migration_runs() == [later, done]


def test_reflections_are_read_by_their_ids(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    made = [make_reflection(scope, f"thought {n}") for n in range(3)]
    applied(store, *(AddReflection(reflection=r, word_limit=9) for r in made))
    found = store.memory.reflections_by_ids([made[0].id, made[2].id, new_id(), "no id"])
    assert found == {made[0].id: made[0], made[2].id: made[2]}
    assert store.memory.reflections_by_ids([]) == {}


def test_one_process_holds_the_lease_until_it_expires(store: Store) -> None:
    soon = NOW + timedelta(minutes=1)
    assert store.migrations.take_migration_lease("one", now=NOW, until=soon) is None
    assert store.migrations.take_migration_lease("two", now=NOW, until=soon) == ("one", soon)
    later = soon + timedelta(minutes=1)
    assert store.migrations.take_migration_lease("one", now=NOW, until=later) is None
    assert store.migrations.take_migration_lease("two", now=soon, until=later) == ("one", later)
    assert (
        store.migrations.take_migration_lease("two", now=later, until=later + timedelta(hours=1))
        is None
    )
    store.migrations.end_migration_lease("one")  # no longer its own
    assert store.migrations.take_migration_lease("one", now=later, until=later)[0] == "two"
    store.migrations.end_migration_lease("two")
    assert store.migrations.take_migration_lease("one", now=later, until=later) is None
