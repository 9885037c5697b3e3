"""Plans and vectors of runs."""

from __future__ import annotations

import itertools
from typing import Any

from edenmem.engine.migration.planning import make_plan
from edenmem.engine.migration.reports import MigrationPlan, RunOptions
from edenmem.models.scope import Scope
from edenmem.models.v1 import V1Problem, V1ProblemKind
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.engine.migration_runs import listed
from tests.engine.migration_runs.conftest import Migrate
from tests.engine.migration_runs.listed import AGENT, OTHER, USER, ListedPlan, whole_plan
from tests.support.builders import change_set, writing
from tests.support.embedder import FakeEmbedder
from tests.support.runtime import make_runtime
from tests.support.vectors import count_models

AGENTS, USERS = Scope.agent(AGENT), Scope.user(AGENT, USER)


def planned(store: Store, plan: ListedPlan, **options: Any) -> MigrationPlan:
    return make_plan(make_runtime(store), plan, RunOptions(**options))


# -- plans ---------------------------------------------------------------------------------------


def test_a_plan_is_complete_and_writes_nothing(store: Store, migrate: Migrate) -> None:
    live = writing(USERS, "Live.")
    store.changes.apply(change_set(live))
    problem = V1Problem(
        collection="memory_user",
        document_id="1",
        agent_id=AGENT,
        kind=V1ProblemKind.DANGLING,
        detail="there is no memory 9",
    )
    items = [*whole_plan().listed, listed.fact(AGENTS, "Odd.", problems=(problem,))]
    before = list(store.log.audit())
    plan = planned(store, ListedPlan(items))
    assert list(store.log.audit()) == before
    assert store.migrations.migration_runs() == []
    (row,) = plan.rows
    assert (row.facts, row.reflections, row.texts, row.policies) == (3, 6, 1, 1)
    assert (row.left_behind, row.bad, plan.conflicts_by_treatment) == (1, 1, {"kept": 1})
    assert plan.left_behind == {"episodes are left behind": 1}
    assert (plan.problems_by_kind, plan.problems) == ({"dangling": 1}, (problem,))
    assert {sample.kind for sample in plan.samples} == {"text", "fact", "reflection"}
    assert all(sample.before.startswith("text of memory_") for sample in plan.samples)
    migrate(ListedPlan(items))
    again = planned(store, ListedPlan(items))
    assert again.rows[0].already == 12
    assert (again.rows[0].facts, again.samples) == (0, ())  # the v2 text is kept


def test_a_plan_works_without_a_store(tmp_path: Any) -> None:
    path = tmp_path / "none.db"
    plan = planned(SqliteStore(path), whole_plan())
    assert "edenmem init" in plan.notices[0]
    assert not path.exists()


# -- vectors -------------------------------------------------------------------------------------


def test_facts_are_embedded_at_the_end(store: Store, migrate: Migrate) -> None:
    other = Scope.agent(OTHER)
    plan = ListedPlan([listed.fact(AGENTS, "One."), listed.fact(other, "Two.", agent_id=OTHER)])
    embedder = FakeEmbedder()
    report = migrate(plan, embedder=embedder, embed=True)
    assert report.embedding is not None
    assert report.embedding.embedded == 2
    assert count_models(store) == {embedder.model: 2}


def test_without_a_model_facts_wait_for_a_backfill(store: Store, migrate: Migrate) -> None:
    report = migrate(whole_plan(), embed=True)
    assert report.embedding is None
    assert any("no embedding model" in notice for notice in report.notices)
    assert set(count_models(store)) == {""}


def test_progress_is_correct(sqlite_store: Store, clock: Any) -> None:
    import asyncio

    from edenmem.engine.migration.run import V1Runner
    from tests.support.builders import make_actor

    told: list[tuple[str, int, int]] = []
    runner = V1Runner(
        make_runtime(sqlite_store, actor=make_actor("migrate v1"), clock=clock),
        whole_plan(),
        RunOptions(batch_size=5),
    )
    asyncio.run(runner.run(progress=lambda *step: told.append(step)))
    moving = [(done, total) for step, done, total in told if step == "moving"]
    assert moving == [(2, 14), (7, 14), (12, 14), (14, 14)]
    assert [step for step, _ in itertools.groupby(told, key=lambda one: one[0])] == [
        "moving",
        "verifying",
    ]
