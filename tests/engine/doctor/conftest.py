"""A healthy memory on each kind of store, and a doctor for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edenmem.engine.doctor.report import CATALOG, DoctorReport, FixReport, State
from edenmem.engine.doctor.session import open_session
from edenmem.settings.schema import EmbeddingSettings, Settings
from tests.support.builders import make_actor
from tests.support.embedder import FakeEmbedder
from tests.support.runtime import make_runtime
from tests.support.ward import EMBEDDER, TODAY, MongoWard, SqliteWard, Ward

SETTINGS = Settings(embedding=EmbeddingSettings(provider="none"))


@pytest.fixture(autouse=True)
def _embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the model of the memory's vectors."""

    def opened(settings: Settings) -> FakeEmbedder:
        EMBEDDER.closed = False
        return EMBEDDER

    monkeypatch.setattr("edenmem.engine.doctor.context.open_embedder", opened)


@pytest.fixture(scope="session")
def _sqlite_ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteWard]:
    ward = SqliteWard(tmp_path_factory.mktemp("ward"))
    yield ward
    ward.close()


@pytest.fixture(scope="session")
def _mongo_ward(secantus_uri: str) -> Iterator[MongoWard]:
    ward = MongoWard(secantus_uri)
    yield ward
    ward.close()


@pytest.fixture
def on_sqlite(_sqlite_ward: SqliteWard) -> SqliteWard:
    """Return a healthy memory in a file."""
    _sqlite_ward.fresh()
    return _sqlite_ward


@pytest.fixture
def on_mongo(_mongo_ward: MongoWard) -> MongoWard:
    """Return a healthy memory in MongoDB."""
    _mongo_ward.fresh()
    return _mongo_ward


@pytest.fixture(params=["sqlite", pytest.param("mongo", marks=pytest.mark.slow)])
def ward(request: pytest.FixtureRequest) -> Any:
    """Return a healthy memory on each kind of store."""
    return request.getfixturevalue(f"on_{request.param}")


def examine(ward: Ward, *checks: str, **options: Any) -> DoctorReport:
    """Return the doctor's report."""
    names = frozenset(checks) or frozenset(CATALOG)
    with open_session(
        make_runtime(ward.store, SETTINGS, actor=make_actor("edenmem doctor"), clock=lambda: TODAY),
        names,
        **options,
    ) as visit:
        return visit.examine()


def fix(ward: Ward, *checks: str) -> tuple[FixReport, DoctorReport]:
    """Return the repairs and the report afterwards."""
    names = frozenset(checks) or frozenset(CATALOG)
    with open_session(
        make_runtime(
            ward.store, SETTINGS, actor=make_actor("edenmem doctor --fix"), clock=lambda: TODAY
        ),
        names,
    ) as visit:
        report = visit.examine()
        done = visit.repair(visit.plan(report))
        return done, visit.examine_again(report, done)


def found(report: DoctorReport) -> dict[str, set[str]]:
    """Return check → IDs of its findings, without the missing language model."""
    result = {}
    for check in report.checks:
        ids = {finding.target_id for finding in check.examples} - {"llm"}
        if check.state not in (State.OK, State.SKIPPED) and ids:
            result[check.name] = ids
        elif check.count == 0 and "check failed" not in check.remark:
            assert check.state in (State.OK, State.UNTESTED, State.SKIPPED), check
    return result
