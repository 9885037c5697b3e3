"""Migrations of any v1 database lose and invent nothing, and can be repeated and rolled back.

The result is the same however often the run was killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.factory import open_v1_plan
from edenmem.models.search import FactFilter
from edenmem.models.v1 import Outcome, V1Item, V1Options
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.engine.migration_runs.conftest import migrator, roll_back
from tests.engine.migration_runs.databases import databases, options
from tests.support import stores
from tests.support.builders import FixedClock, make_actor
from tests.support.runtime import make_runtime
from tests.support.v1_files import Database, write_dump

pytestmark = pytest.mark.slow


Opened = AbstractContextManager[Store]


class Killed(BaseException):
    """The process is killed."""


def memory(store: Store) -> dict[str, Any]:
    """Return the memory without times and run IDs."""
    scopes = sorted(summary.scope for summary in store.memory.scopes())
    facts = store.memory.facts(FactFilter(scopes=scopes)) if scopes else iter(())
    return {
        "facts": sorted(
            (f.home.key, f.content, f.formed_at, f.session_id or "", f.source_message_ids)
            for f in facts
        ),
        "reflections": sorted(
            (r.home.key, r.content, r.formed_at, r.absorbed)
            for r in store.memory.reflections(scopes)
        ),
        "pending": {
            scope.key: [r.content for r in store.memory.pending(scope)] for scope in scopes
        },
        "texts": {
            scope.key: (text.consolidated_content, text.version, text.updated_at)
            for scope, text in store.memory.consolidations(scopes).items()
            if text.consolidated_content
        },
        "earlier": {
            scope.key: [
                (v.version, v.content)
                for v in store.history.versions("consolidation", "", scope=scope)
            ]
            for scope in scopes
        },
        "policies": {s.key: p.active for s, p in store.memory.policies(scopes).items()},
        "toggles": {a.id: a.agent_memory_enabled for a in store.host.agents()},
    }


@contextmanager
def dumped(database: Database, wanted: dict[str, Any]) -> Iterator[Any]:
    with TemporaryDirectory() as folder:
        write_dump(Path(folder), database)
        with open_v1_plan(Settings(), folder, V1Options(**wanted)) as plan:
            yield plan


def prove(open_store: Callable[[], Opened], database: Database, wanted: dict[str, Any]) -> None:
    clock = FixedClock()
    with dumped(database, wanted) as plan, open_store() as store:
        items = list(plan.items())
        migrate = migrator(store, clock)
        first = migrate(plan)
        assert first.verification is not None
        assert not first.verification.differing, first.verification  # empty files are incomplete
        assert first.verification.documents == sum(plan.about.totals.values())
        assert "failed" not in first.run.counts, first.run.problems
        arrived = memory(store)
        nothing_lost(items, arrived)
        nothing_invented(items, plan, arrived)
        again = migrate(plan)
        assert memory(store) == arrived
        assert not {"migrated", "merged"} & set(again.run.counts)
        for run in (again.run, first.run):
            report = roll_back(
                make_runtime(store, actor=make_actor("migrate rollback"), clock=clock), run.id
            )
            assert not report.kept
        empty = memory(store)
        assert not empty["facts"]
        assert not empty["reflections"]
        assert not empty["texts"]
        assert not empty["policies"]


def nothing_lost(items: list[V1Item], arrived: dict[str, Any]) -> None:
    """Check that each target exists, in order, and that other items have a reason."""
    contents = {(key, content) for key, content, *_ in arrived["facts"] + arrived["reflections"]}
    order: dict[str, list[str]] = {}
    for item in items:
        if item.memory is None and item.switch is None:
            assert item.reason
            assert item.outcome in (Outcome.LEFT_BEHIND, Outcome.BAD)
        if made := item.fact or item.reflection:
            assert (made.home.key, made.content) in contents
        if item.reflection and not item.reflection.absorbed:
            order.setdefault(item.reflection.home.key, []).append(item.reflection.content)
        if text := item.text:
            found = arrived["texts"][text.home.key]
            assert (found[0], found[2]) == (text.consolidated_content, text.updated_at)
    for key, wanted in order.items():
        assert arrived["pending"][key] == wanted


def nothing_invented(items: list[V1Item], plan: Any, arrived: dict[str, Any]) -> None:
    """Check that each fact and reflection is the text of a v1 document of its agent."""
    texts = {
        (item.agent_id, plan.source_text(ref).strip()) for item in items for ref in item.sources
    }
    for key, content, *_ in arrived["facts"] + arrived["reflections"]:
        assert (key.split(":")[1], content.strip()) in texts
    wanted = {item.text.home.key for item in items if item.text}
    assert set(arrived["texts"]) == wanted


@given(database=databases(), wanted=options())
@settings(max_examples=25)
def test_into_sqlite(database: Database, wanted: dict[str, Any]) -> None:
    @contextmanager
    def opened() -> Iterator[Store]:
        with TemporaryDirectory() as folder, stores.sqlite_store(Path(folder)) as store:
            yield store

    prove(opened, database, wanted)


@given(database=databases(), wanted=options())
@settings(max_examples=3)
def test_into_a_server(secantus_uri: str, database: Database, wanted: dict[str, Any]) -> None:
    prove(lambda: stores.secantus_store(secantus_uri), database, wanted)


# -- killed anywhere -----------------------------------------------------------------------------


@given(
    database=databases(),
    wanted=options(),
    deaths=st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=3),
)
@settings(max_examples=12)
def test_a_run_killed_at_any_step_ends_the_same(
    database: Database, wanted: dict[str, Any], deaths: list[tuple[int, bool]]
) -> None:
    clock = FixedClock()
    with dumped(database, wanted) as plan, TemporaryDirectory() as folder:
        with stores.sqlite_store(Path(folder)) as whole:
            expected = migrator(whole, clock)(plan).run.counts
            unbroken = memory(whole)
        (Path(folder) / "other").mkdir()
        with stores.sqlite_store(Path(folder) / "other") as store:
            for at, late in deaths:
                with pytest.MonkeyPatch.context() as patch:
                    _die(patch, store, at, late=late)
                    try:
                        migrator(store, clock)(plan)
                    except Killed:
                        clock.advance(minutes=5)
            report = migrator(store, clock)(plan)
            assert report.verification is not None
            assert not report.verification.differing
            assert memory(store) == unbroken
            if len(store.migrations.migration_runs()) == 1 and report.run.resumed:
                assert report.run.counts == expected


def _die(patch: pytest.MonkeyPatch, store: Store, at: int, *, late: bool) -> None:
    count = itertools.count(1)

    def mortal(do: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(given: Any) -> Any:
            dies = next(count) == at
            if dies and not late:
                raise Killed
            found = do(given)
            if dies:
                raise Killed
            return found

        return step

    patch.setattr(store.changes, "apply", mortal(store.changes.apply))
    patch.setattr(store.migrations, "put_migration_run", mortal(store.migrations.put_migration_run))
