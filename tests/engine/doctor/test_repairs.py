"""Repairs are audited, can be interrupted anywhere, and lose nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from edenmem.engine.doctor.report import select_checks
from edenmem.engine.doctor.session import open_session
from edenmem.errors import ProviderTimeout
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope
from tests.engine.doctor.conftest import SETTINGS, examine, fix, found
from tests.engine.doctor.test_damage import said
from tests.support import damage
from tests.support.builders import some
from tests.support.runtime import make_runtime
from tests.support.ward import EMBEDDER, TODAY, MongoWard, SqliteWard, Ward

#: Methods of a store that repairs write with.
WRITES = (
    "changes.apply",
    "formations.apply_formation",
    "indexes.create_index",
    "vectors.drop_vectors",
    "changes.finish_absorbing",
    "database.repair_schema",
    "formations.move",
    "statistics.recount",
    "indexes.update_index",
)


def hurt(ward: Any) -> None:
    """Return a store with many kinds of damage."""
    damage.a_claim_outlived_its_worker(ward)
    damage.what_was_recorded_was_not_applied(ward)
    damage.a_hash_is_wrong(ward)
    if isinstance(ward, SqliteWard):
        damage.keys_and_triggers_were_dropped(ward)
        damage.vectors_are_zeros_or_lost(ward)
        damage.what_went_into_the_text_is_marked_as_waiting_in_a_file(ward)
        damage.search_indexes_lack_facts(ward)
    else:
        damage.a_fact_is_there_twice_since_its_key_was_dropped(ward)
        damage.a_buffer_has_ids_of_nothing_of_others_and_twice(ward)
        damage.what_went_into_the_text_is_marked_as_waiting(ward)


def test_everything_is_repaired_in_one_run(on_sqlite: SqliteWard) -> None:
    hurt(on_sqlite)
    before = said(on_sqlite)
    done, _ = fix(on_sqlite)
    assert {repair.check: repair.refused for repair in done.repairs if repair.refused} == {}
    assert set(found(examine(on_sqlite))) <= {"vectors"}
    assert before <= said(on_sqlite)


class _Killed(BaseException):
    """The process was killed."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "after"), [("sqlite", False), ("sqlite", True), ("mongo", True)])
def test_a_run_killed_anywhere_can_be_repeated(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str, after: bool
) -> None:
    """The first run dies at its first write, the next, on what that one left, at its second, and
    so on until there is nothing left to die at."""
    on_sqlite: Ward = request.getfixturevalue(f"on_{kind}")
    hurt(on_sqlite)
    before = said(on_sqlite)
    deaths = 0
    while _dies(on_sqlite, monkeypatch, at=deaths, after=after):
        deaths += 1
    assert deaths > 2
    assert set(found(examine(on_sqlite))) <= {"vectors"}
    assert before <= said(on_sqlite)


def _dies(ward: Ward, monkeypatch: pytest.MonkeyPatch, *, at: int, after: bool) -> bool:
    """Return whether a run reached the write at which it is killed."""
    writes = itertools.count()

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*given: Any, **named: Any) -> Any:
            dies = next(writes) == at
            if dies and not after:
                raise _Killed
            result = real(*given, **named)
            if dies:
                raise _Killed
            return result

        return write

    with monkeypatch.context() as patch:
        for name in WRITES:
            part_name, method = name.split(".")
            part = getattr(ward.store, part_name)
            patch.setattr(part, method, mortal(getattr(part, method)))
        try:
            fix(ward)
        except _Killed:
            return True
    return False


def test_the_log_shows_the_repairs_of_a_run(ward: Ward) -> None:
    hurt(ward)
    done, _ = fix(ward)
    entries = [entry for entry in ward.store.log.audit() if entry.actor.run_id == done.run_id]
    actions = {entry.action for entry in entries}
    assert actions >= {"revise_fact", "repair_buffer"}
    assert {entry.actor.command for entry in entries} == {"edenmem doctor --fix"}
    assert all(entry.reason.startswith("doctor: ") for entry in entries)


@pytest.mark.slow
def test_the_oldest_duplicate_is_kept_and_others_go_to_history(on_mongo: MongoWard) -> None:
    (young,) = damage.a_fact_is_there_twice_since_its_key_was_dropped(on_mongo)["duplicates"]
    fix(on_mongo)
    assert on_mongo.store.memory.fact(on_mongo.ids.lives) is not None
    assert on_mongo.store.memory.fact(young) is None
    *_, tombstone = on_mongo.store.history.versions("fact", young)
    assert tombstone.action == "delete"
    assert tombstone.snapshot is not None
    assert tombstone.snapshot.content == "Anna lives in Lisbon."


def test_a_text_edited_outside_is_hashed_embedded_and_found(ward: Ward) -> None:
    """Known failure 19: a vector belonged to an earlier text of its fact."""
    damage.a_text_was_changed_past_edenmem(ward)
    fix(ward)
    fact = some(ward.store.memory.fact(ward.ids.lives, with_vector=True))
    assert fact.hash == content_hash(fact.content)
    assert fact.embedding == EMBEDDER.vector(fact.content)
    assert fact.version == 2
    assert fact.recent_at < TODAY  # a repair does not make the fact newer


def test_an_unavailable_model_does_not_block_other_repairs(on_sqlite: SqliteWard) -> None:
    damage.a_hash_is_wrong(on_sqlite)
    damage.a_claim_outlived_its_worker(on_sqlite)
    EMBEDDER.failures.append(ProviderTimeout("the endpoint did not answer"))
    done, after = fix(on_sqlite)
    refused = {repair.check: repair.refused for repair in done.repairs}
    assert refused == {"hashes": ("the endpoint did not answer",), "claims": ()}
    assert set(found(after)) == {"hashes"}


def test_absorbed_reflections_are_not_absorbed_twice(ward: Ward) -> None:
    """Known failure 16: absorbed reflections were absorbed again."""
    if isinstance(ward, SqliteWard):
        damage.what_went_into_the_text_is_marked_as_waiting_in_a_file(ward)
    else:
        damage.what_went_into_the_text_is_marked_as_waiting(ward)  # type: ignore[arg-type]
    fix(ward)
    scope = Scope.user(ward.ids.eve, ward.ids.anna)
    assert [each.id for each in ward.store.memory.pending(scope)] == [
        ward.ids.third,
        ward.ids.fourth,
    ]
    second = some(ward.store.memory.reflection(ward.ids.second))
    assert second.absorbed
    assert second.consolidated_into == ward.ids.text


def test_a_plan_lists_repairs_without_writing(on_sqlite: SqliteWard) -> None:
    hurt(on_sqlite)
    with open_session(
        make_runtime(on_sqlite.store, SETTINGS, clock=lambda: TODAY), select_checks(())
    ) as visit:
        report = visit.examine()
        plan = visit.plan(report)
        assert plan.dry_run
        assert all(repair.found and repair.action and repair.examples for repair in plan.repairs)
        assert {repair.check for repair in plan.repairs} == {
            check.name for check in report.checks if check.fixable
        }
        assert found(visit.examine()) == found(report)


def test_unsafe_repairs_are_not_made(on_sqlite: SqliteWard) -> None:
    damage.an_agent_is_missing(on_sqlite)
    damage.user_memory_of_a_group_chat(on_sqlite)
    damage.a_reflection_says_nothing(on_sqlite)
    before = found(examine(on_sqlite))
    done, _ = fix(on_sqlite)
    assert done.repairs == ()
    assert found(examine(on_sqlite)) == before
