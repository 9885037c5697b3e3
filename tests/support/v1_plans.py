"""Migration plans of v1 for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edenmem.engine.factory import open_v1_plan
from edenmem.engine.migration.source import StagedPlan
from edenmem.models.v1 import V1Item, V1Options
from edenmem.settings.schema import Settings, StoreSettings
from tests.support.v1_files import Database, write_dump


@contextmanager
def plan_of(location: str | Path, **options: Any) -> Iterator[StagedPlan]:
    """Return the plan of a file, a folder or a MongoDB."""
    settings = Settings(store=StoreSettings(uri="sqlite:///unused.db"))
    with open_v1_plan(settings, str(location), V1Options(**options)) as plan:
        yield plan


def items_of(location: str | Path, **options: Any) -> list[V1Item]:
    """Return all items of a plan."""
    with plan_of(location, **options) as plan:
        return list(plan.items())


def items_of_database(folder: Path, database: Database, **options: Any) -> list[V1Item]:
    """Dump a database into ``folder``, and return all items of its plan."""
    return items_of(write_dump(folder, database), **options)
