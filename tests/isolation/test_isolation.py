"""Known failures 1 to 8, 33 and 41: one's memory never reaches another, whatever a model answers.

Run with ``EDENMEM_HYPOTHESIS=more`` for a search of hours instead of seconds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from edenmem.models.ids import new_id
from edenmem.store.mongo import MongoStore
from edenmem.store.sqlite import SqliteStore
from tests.isolation.machine import Isolation
from tests.isolation.raw import RawMongo, RawSqlite

pytestmark = pytest.mark.slow
MORE = os.environ.get("EDENMEM_HYPOTHESIS") == "more"


def budget(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples * 100 if MORE else examples,
        stateful_step_count=steps * 2 if MORE else steps,
        deadline=None,
        # A failure is told with the steps that led to it; to make them fewer takes minutes.
        phases=tuple(Phase) if MORE else (Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(0 if MORE else 900)
def test_nobody_is_shown_what_is_not_theirs(tmp_path: Path) -> None:
    template = tmp_path / "template.db"
    store = SqliteStore(template)
    store.database.initialize()
    store.database.close()

    class OnSqlite(Isolation):
        def __init__(self) -> None:
            path = tmp_path / f"{new_id()}.db"
            shutil.copy(template, path)
            super().__init__(SqliteStore(path), RawSqlite(path))

        def teardown(self) -> None:
            super().teardown()
            self.store.database.close()

    run_state_machine_as_test(OnSqlite, settings=budget(2, 30))


@pytest.mark.timeout(0 if MORE else 900)
def test_nor_on_mongodb(open_store: Callable[[str], MongoStore], secantus_uri: str) -> None:
    class OnSecantus(Isolation):
        def __init__(self) -> None:
            store = open_store("secantus")
            super().__init__(store, RawMongo(secantus_uri, store.connection.database.name))

        def teardown(self) -> None:
            super().teardown()
            self.store.database.close()
            self.raw.close()

    run_state_machine_as_test(OnSecantus, settings=budget(1, 12))
