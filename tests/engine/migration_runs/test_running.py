"""Runs move everything once and in order, despite existing memory and kills."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edenmem.engine.migration.planning import make_plan
from edenmem.engine.migration.reports import MigrationReport, RunOptions
from edenmem.engine.migration.run import V1Runner
from edenmem.errors import ConflictError, StoreError
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    SetAgentToggles,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.forgetting import Forgetting, Subject
from edenmem.models.ids import new_id
from edenmem.models.migration import MigrationRun, RunState, tell_state
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.models.v1 import SHARDS, Outcome, V1Account
from edenmem.settings.paths import stage_folder
from edenmem.store.protocol.store import Store
from tests.engine.migration_runs import listed
from tests.engine.migration_runs.conftest import BOTH, Migrate, migrator
from tests.engine.migration_runs.listed import AGENT, USER, ListedPlan, whole_plan
from tests.support.builders import (
    NOW,
    FixedClock,
    ago,
    change_set,
    make_actor,
    make_agent,
    make_fact,
    make_policy,
    make_reflection,
    make_user,
    writing,
)
from tests.support.forgetting import forget
from tests.support.runtime import make_runtime

AGENTS, USERS, LORE = Scope.agent(AGENT), Scope.user(AGENT, USER), Scope.shard(AGENT, "lore")
MIRA = V1Account(id=AGENT, is_agent=True, username="mira", known=True, user_memory_enabled=True)
COUNTS = {"migrated": 10, "merged": 2, "left_behind": 1, "bad": 1}


def snapshot(store: Store) -> dict[str, Any]:
    """Return all memory, including the log."""
    scopes = [summary.scope for summary in store.memory.scopes()]
    return {
        "facts": sorted(store.memory.facts(FactFilter(scopes=scopes)), key=lambda fact: fact.id),
        "reflections": list(store.memory.reflections(scopes)),
        "texts": store.memory.consolidations(scopes),
        "policies": store.memory.policies(scopes),
        "audit": list(store.log.audit()),
        "history": [store.history.versions("consolidation", "", scope=scope) for scope in scopes],
        "agents": list(store.host.agents()),
    }


def write(scope: Scope, content: str, expected: int = 0) -> WriteConsolidation:
    return writing(scope, content, expected_version=expected)


@BOTH
def test_everything_arrives_with_its_times_numbers_and_order(
    store: Store, migrate: Migrate
) -> None:
    report = migrate(whole_plan())
    run = report.run
    assert (run.state, run.counts, run.done, run.total) == (RunState.DONE, COUNTS, 14, 14)
    assert report.verification is not None
    assert report.verification.complete
    text = store.memory.consolidations([USERS])[USERS]
    assert (text.consolidated_content, text.version) == ("Anna paints.", 7)
    assert text.updated_at == ago(days=90)
    history = store.history.versions("consolidation", "", scope=USERS)
    assert [(v.version, v.content, v.action) for v in history] == [
        (3, "Old.", "migrate"),
        (7, "Anna paints.", "migrate"),
    ]
    assert [r.content for r in store.memory.pending(USERS)] == [f"thought {n}" for n in range(5)]
    (known,) = store.memory.facts(FactFilter(scopes=(AGENTS,)))
    assert (known.content, known.formed_at) == ("The harbour closes at nine.", ago(days=200))
    assert store.memory.pending(AGENTS) == []
    assert not store.memory.policies([LORE])[LORE].active
    agent = store.host.agent(AGENT)
    assert agent is not None
    assert agent.agent_memory_enabled
    entry = store.log.audit_entry(store.history.versions("fact", known.id)[0].change_id or "")
    assert entry is not None
    assert entry.actor.run_id == run.id
    assert entry.reason.startswith("from memory_sessions/")
    assert [p.reason for p in run.problems] == ["it has no owner"]


def test_a_second_run_changes_nothing(store: Store, migrate: Migrate) -> None:
    """Known failure 44: "already migrated" was judged by what live traffic also creates."""
    plan = whole_plan()
    migrate(plan)
    (known,) = store.memory.facts(FactFilter(scopes=(AGENTS,)))
    from edenmem.models.changes import RemoveFact

    gone = RemoveFact(scope=AGENTS, fact_id=known.id, expected_version=1, at=NOW)
    store.changes.apply(change_set(gone, write(USERS, "Anna paints boats.", 7)))
    before = snapshot(store)
    report = migrate(plan)
    assert snapshot(store) == before
    assert report.run.counts == {"already": 12, "left_behind": 1, "bad": 1}
    assert report.verification is not None
    assert report.verification.complete
    assert report.verification.changed == 2


@BOTH
def test_live_memory_is_kept(store: Store, migrate: Migrate) -> None:
    """Known failure 44: a buffer begun by a conversation counted as a migrated text."""
    store.changes.apply(
        change_set(
            AddReflection(reflection=make_reflection(USERS, "live thought"), word_limit=300),
            AddFact(fact=make_fact(AGENTS, "The harbour closes at nine.")),
            WritePolicy(policy=make_policy(LORE), expected_version=0, at=NOW),
        )
    )
    report = migrate(whole_plan())
    assert store.memory.consolidations([USERS])[USERS].consolidated_content == "Anna paints."
    assert {r.content for r in store.memory.pending(USERS)} == {
        "live thought",
        *(f"thought {n}" for n in range(5)),
    }
    assert store.memory.policies([LORE])[LORE].active
    assert report.run.counts["kept"] == 1  # the policy
    assert report.run.counts["already"] == 1  # the fact
    assert report.verification is not None
    assert report.verification.complete


@pytest.mark.parametrize(
    ("on_conflict", "content", "versions"),
    [
        ("keep", "Live text.", [1]),
        ("replace", "Anna paints.", [1, 3, 7]),
    ],
)
def test_a_text_of_v2_is_never_lost(
    store: Store, migrate: Migrate, on_conflict: str, content: str, versions: list[int]
) -> None:
    store.changes.apply(change_set(write(USERS, "Live text.")))
    report = migrate(whole_plan(), on_conflict=on_conflict)
    text = store.memory.consolidations([USERS])[USERS]
    assert text.consolidated_content == content
    history = store.history.versions("consolidation", "", scope=USERS)
    assert [version.version for version in history] == versions
    assert history[0].content == "Live text."
    assert report.run.counts.get("kept", 0) == (on_conflict == "keep")
    if on_conflict == "keep":
        assert any("v2 has another text" in each.reason for each in report.run.problems)
    assert report.verification is not None
    assert report.verification.complete
    before = snapshot(store)
    migrate(whole_plan(), on_conflict=on_conflict)
    assert snapshot(store) == before


class Killed(BaseException):
    """The process is killed."""


@BOTH
def test_a_killed_run_resumes_with_correct_counts(
    store: Store, migrate: Migrate, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = whole_plan()
    deaths = 0
    writes = ((store.changes, "apply"), (store.migrations, "put_migration_run"))
    for (part, method), after in itertools.product(writes, (False, True)):
        original, calls = getattr(part, method), itertools.count(1)

        def dying(given: Any, *, _how: Any = (original, calls, after)) -> Any:
            do, count, late = _how
            if next(count) == 2:
                if late:
                    do(given)
                raise Killed
            return do(given)

        with monkeypatch.context() as patch:
            patch.setattr(part, method, dying)
            with pytest.raises(Killed):
                migrate(plan)
        deaths += 1
        clock.advance(minutes=5)
    report = migrate(plan)
    assert len(store.migrations.migration_runs()) == 1
    assert report.run.counts == COUNTS
    assert report.run.resumed == deaths
    assert report.verification is not None
    assert report.verification.complete
    assert [r.content for r in store.memory.pending(USERS)] == [f"thought {n}" for n in range(5)]
    assert len(store.history.versions("consolidation", "", scope=USERS)) == 2


def test_the_next_run_resumes_after_an_outage(
    store: Store, migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = store.changes.apply, []

    def failing(changes: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:  # a text of two versions has a set of its own
            raise StoreError("the server is away")
        return original(changes)

    with monkeypatch.context() as patch:
        patch.setattr(store.changes, "apply", failing)
        with pytest.raises(StoreError):
            migrate(whole_plan())
    (run,) = store.migrations.migration_runs()
    assert (run.state, run.error, run.done) == (RunState.FAILED, "the server is away", 6)
    report = migrate(whole_plan())
    assert (report.run.id, report.run.counts, report.run.error) == (run.id, COUNTS, "")


def test_only_one_migration_runs_at_a_time(
    store: Store, migrate: Migrate, clock: FixedClock
) -> None:
    until = clock.advance(seconds=0)
    store.migrations.take_migration_lease(
        "another host", now=until, until=clock.advance(seconds=30)
    )
    clock.advance(seconds=-10)
    with pytest.raises(ConflictError, match="another host") as caught:
        migrate(whole_plan())
    assert caught.value.hint == "wait until it ends; if it was killed, retry in 10 s"
    assert store.migrations.migration_runs() == []
    clock.advance(seconds=20)
    assert migrate(whole_plan()).run.state is RunState.DONE


def test_the_lease_of_a_killed_process_is_taken_over(
    store: Store, migrate: Migrate, clock: FixedClock
) -> None:
    """FAILURES 126: for a minute, each retry said that the killed process was running."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = make_actor("").host
    for process, is_dead in ((os.getpid(), False), (dead.pid, True)):
        holder = f"root on {host}, process {process} (abc123)"
        until = clock.now + timedelta(seconds=30)
        assert store.migrations.take_migration_lease(holder, now=clock.now, until=until) is None
        if is_dead:
            assert migrate(whole_plan()).run.state is RunState.DONE
        else:
            with pytest.raises(ConflictError, match="another migration is running"):
                migrate(whole_plan())
            store.migrations.end_migration_lease(holder)


@BOTH
def test_known_failure_45_failures_are_counted_and_stop_nothing(
    store: Store, migrate: Migrate
) -> None:
    """Known failure 45: failed inserts were counted as done."""
    foreign = make_fact(Scope.agent("d" * 24), "Of another agent.")
    plan = whole_plan()
    taken = listed.fact(AGENTS, "Taken.")
    store.changes.apply(change_set(AddFact(fact=_with_id(foreign, taken))))
    report = migrate(ListedPlan([*plan.listed, taken]))
    assert report.run.counts == {**COUNTS, "failed": 1}
    assert any("has this id" in each.reason for each in report.run.problems)
    assert report.verification is not None
    assert not report.verification.complete
    assert report.verification.differing == 1


def _with_id(fact: Any, item: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(fact, id=item.fact.id)


def test_a_run_adds_accounts_to_an_embedded_store(sqlite_store: Store, clock: FixedClock) -> None:
    people = [
        V1Account(id=AGENT, is_agent=True, username="mira", known=True, user_memory_enabled=True)
    ]
    accounts = [
        V1Account(id=USER, username="anna", known=True),
        V1Account(id="d" * 24, username="gone", known=False),
    ]
    plan = ListedPlan(whole_plan().listed, people=people, accounts=accounts)
    report = migrator(sqlite_store, clock)(plan)
    assert [agent.username for agent in sqlite_store.host.agents()] == ["mira"]
    assert [user.username for user in sqlite_store.host.users()] == ["anna"]
    assert report.notices == ()
    assert report.run.counts == COUNTS


def test_memory_of_an_account_with_a_taken_name_is_kept(
    sqlite_store: Store, clock: FixedClock
) -> None:
    """Memory arrives under its own ID, and the account can get another name."""
    sqlite_store.host.add_agent(make_agent("mira", id="e" * 24))
    sqlite_store.host.add_user(make_user("anna", id="d" * 24))
    plan = ListedPlan(
        whole_plan().listed,
        people=[
            V1Account(
                id=AGENT, is_agent=True, username="mira", known=True, user_memory_enabled=True
            )
        ],
        accounts=[
            V1Account(id=USER, username="anna", known=True),
            V1Account(id="a" * 24, username="jun", known=True),
            V1Account(id="c" * 24, username="jun", known=True),
        ],
    )
    told = [each for each in migrator(sqlite_store, clock)(plan).notices if "not added" in each]
    assert all(name in each for name, each in zip(("mira", "anna", "jun"), told, strict=True))
    assert f"edenmem agent add NAME --id {AGENT}" in told[0]
    assert f"edenmem user add NAME --id {USER}" in told[1]
    assert f"edenmem user add NAME --id {'c' * 24}" in told[2]
    assert AGENTS in sqlite_store.memory.consolidations([AGENTS])

    sqlite_store.host.add_agent(make_agent("mira-v1", id=AGENT))
    for name, id in (("anna-v1", USER), ("jun-2", "c" * 24)):
        sqlite_store.host.add_user(make_user(name, id=id))
    assert migrator(sqlite_store, clock)(plan).notices == ()


def test_memory_of_an_unknown_agent_is_kept(store: Store, clock: FixedClock) -> None:
    report = migrator(store, clock)(whole_plan())
    assert report.run.counts["kept"] == 1  # its toggle
    assert "agent add" in report.notices[0]
    assert store.memory.consolidations([USERS])[USERS].version == 7
    assert report.verification is not None
    assert report.verification.complete


def test_a_run_and_its_verification_have_equal_counts(store: Store, migrate: Migrate) -> None:
    shared = (listed.ref("memory_agent", "one"),)
    plan = ListedPlan(
        [
            listed.fact(AGENTS, "one", sources=shared),
            listed.item("leftover", "x", sources=shared, outcome=Outcome.LEFT_BEHIND),
        ]
    )
    report: MigrationReport = migrate(plan)
    assert report.verification is not None
    assert report.verification.counts == report.run.counts == {"migrated": 1, "left_behind": 1}
    assert (report.verification.documents, report.verification.complete) == (1, True)


@BOTH
def test_known_failure_49_erased_users_are_not_migrated(store: Store, migrate: Migrate) -> None:
    """Known failure 49: erasing a user left copies, which a migration brought back."""
    forgotten = Subject(kind="user", owner=USER)
    store.erasure.begin_forgetting(Forgetting(id=forgotten.id, kind="user", begun_at=NOW))
    plan = whole_plan()
    preview = make_plan(make_runtime(store), plan, RunOptions())
    assert preview.left_behind["it or its owner was erased here"] == 6
    report = migrate(plan)
    assert store.memory.pending(USERS) == []
    assert USERS not in store.memory.consolidations([USERS])
    assert report.run.counts["left_behind"] == 7
    assert report.verification is not None
    assert report.verification.complete


def test_an_erased_fact_is_not_migrated(store: Store, migrate: Migrate) -> None:
    """Not even after a rollback, when the other memory is migrated again."""
    first = listed.fact(AGENTS, "one")
    assert first.fact is not None
    plan = ListedPlan([first, listed.fact(AGENTS, "two")])
    migrate(plan)
    report = forget(store, facts=[first.fact.id])
    assert report.removed["facts"] == 1
    again = migrate(plan)
    assert again.run.counts == {"already": 1, "left_behind": 1}
    assert again.verification is not None
    assert again.verification.complete
    assert store.memory.fact(first.fact.id) is None


def test_a_forgetting_removes_what_an_interrupted_run_has_read(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stage_folder().mkdir(parents=True)
    stage = stage_folder() / "1.stage"
    stage.touch()
    fact = make_fact(AGENTS, "one")
    sqlite_store.changes.apply(change_set(AddFact(fact=fact)))
    forget(sqlite_store, facts=[fact.id])
    assert not stage.exists()


def test_a_cancellation_is_recorded(store: Store, migrate: Migrate, monkeypatch: Any) -> None:
    def cancel(changes: Any) -> Any:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(store.changes, "apply", cancel)
        with pytest.raises(asyncio.CancelledError):
            migrate(whole_plan())
    (run,) = store.migrations.migration_runs()
    assert (run.state, run.error) == (RunState.FAILED, "interrupted")
    assert migrate(whole_plan()).run.id == run.id


def test_a_run_cancelled_at_its_first_entry_stops_immediately(
    store: Store, migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.migrations.put_migration_run
    running: list[asyncio.Task[Any] | None] = []

    def put_and_cancel(run: MigrationRun) -> None:
        put(run)
        if running:
            _cancel(running.pop())

    async def run() -> None:
        running.append(asyncio.current_task())
        await V1Runner(make_runtime(store), whole_plan(), RunOptions(batch_size=4)).run()

    monkeypatch.setattr(store.migrations, "put_migration_run", put_and_cancel)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    (found,) = store.migrations.migration_runs()
    assert tell_state(found, (), found.updated_at) is RunState.INTERRUPTED
    report = migrate(whole_plan())
    assert (report.run.id, report.run.state) == (found.id, RunState.DONE)


def test_a_cancellation_stops_the_verification(
    store: Store, migrate: Migrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(*args: Any, progress: Callable[[int], None], **more: Any) -> None:
        _cancel(running)
        while True:
            progress(0)

    async def run() -> None:
        nonlocal running
        running = asyncio.current_task()
        await V1Runner(make_runtime(store), whole_plan(), RunOptions()).run()

    running: Any = None
    with monkeypatch.context() as patch:
        patch.setattr("edenmem.engine.migration.run.verify", verify)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())
    (found,) = store.migrations.migration_runs()
    assert tell_state(found, (), found.updated_at) is RunState.INTERRUPTED
    assert migrate(whole_plan()).verification is not None


def _cancel(task: Any) -> None:
    task.get_loop().call_soon_threadsafe(task.cancel)


def test_other_options_start_another_run(store: Store, migrate: Migrate) -> None:
    """The other run recognizes the existing memory."""
    migrate(whole_plan())
    second = migrate(whole_plan(), on_conflict="replace")
    assert second.run.counts["already"] == 12
    assert len(store.migrations.migration_runs()) == 2
    assert new_id() not in {run.id for run in store.migrations.migration_runs()}


@BOTH
def test_an_agent_is_not_switched_back(store: Store, migrate: Migrate) -> None:
    """Not even after its shards were edited in v1."""
    first = listed.toggles(enabled=True)
    later = msgspec.structs.replace(first, sources=(listed.ref(SHARDS, "written to since"),))
    migrate(ListedPlan([first]))
    off = SetAgentToggles(agent_id=AGENT, agent_memory_enabled=False, at=NOW)
    store.changes.apply(change_set(off))
    report = migrate(ListedPlan([later]))
    assert report.run.counts == {"already": 1}
    (agent,) = store.host.agents()
    assert agent.agent_memory_enabled is False
    assert report.verification is not None
    assert report.verification.complete
