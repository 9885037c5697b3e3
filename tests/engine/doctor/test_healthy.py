"""A healthy store has no findings, and examining changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.doctor.examination import EXAMINATIONS
from edenmem.engine.doctor.report import CATALOG, LEFT_OUT, State, select_checks
from edenmem.engine.doctor.session import open_session
from edenmem.engine.factory import open_llm
from edenmem.engine.service import MemoryService
from edenmem.engine.sessions.importer import import_sessions
from edenmem.errors import UsageError
from edenmem.models.backup import RecordKind
from edenmem.settings.schema import EmbeddingSettings, LLMSettings, Settings
from edenmem.store.protocol.store import Store
from tests.engine.doctor.conftest import examine, found
from tests.support.builders import make_actor
from tests.support.damage import DAMAGES
from tests.support.runtime import make_runtime
from tests.support.ward import EMBEDDER, MongoWard, SqliteWard, Ward

COMMUNITY = Path(__file__).parents[3] / "examples" / "community"


def test_a_healthy_memory_has_no_findings(ward: Ward) -> None:
    report = examine(ward)
    assert found(report) == {}
    assert report.reachable
    assert report.is_well
    of_files = {"permissions", "file"} if isinstance(ward, MongoWard) else set()
    assert [c.name for c in report.checks] == [n for n in CATALOG if n not in of_files]


def test_file_checks_are_not_reported_without_files(ward: Ward) -> None:
    (file,) = (check for check in examine(ward, "file").checks if check.name == "file")
    assert file.state is State.OK
    assert ("not checked" in file.remark) == isinstance(ward, MongoWard)


def test_only_a_full_examination_reads_all_memory(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, kinds = ward.store.walk.documents, set[RecordKind]()

    def documents(wanted: Sequence[RecordKind], *given: Any, **named: Any) -> Any:
        kinds.update(wanted)
        return real(wanted, *given, **named)

    monkeypatch.setattr(ward.store.walk, "documents", documents)
    report = examine(ward, full=False)
    assert kinds == {RecordKind.CONSOLIDATION}
    assert found(report) == {}
    skipped = {check.name: check.remark for check in report.checks if check.state is State.SKIPPED}
    assert skipped == {check.name: LEFT_OUT for check in CATALOG.values() if check.full}


def _everything(ward: SqliteWard | MongoWard) -> Any:
    if isinstance(ward, SqliteWard):
        return hashlib.sha256(ward.path.read_bytes()).hexdigest()
    return {
        name: sorted(map(repr, ward.database[name].find()))
        for name in ward.database.list_collection_names()
    }


def test_examining_changes_nothing(ward: Any) -> None:
    before = _everything(ward)
    examine(ward)
    ward.store.database.close()
    assert _everything(ward) == before


@pytest.mark.slow
def test_the_example_community_is_healthy(sqlite_store: Store) -> None:
    settings = Settings(
        embedding=EmbeddingSettings(provider="none"),
        llm=LLMSettings(provider="replay", replay=str(COMMUNITY / "answers.jsonl")),
    )
    asyncio.run(_live(sqlite_store, settings))
    with open_session(make_runtime(sqlite_store, settings), select_checks(())) as visit:
        report = visit.examine()
    assert found(report) == {}
    others = {check.name: check.state for check in report.checks if check.state is not State.OK}
    assert others == {"providers": State.UNTESTED}


async def _live(store: Store, settings: Settings) -> None:
    with (COMMUNITY / "sessions.jsonl").open("rb") as lines:
        import_sessions(make_runtime(store), lines, add_missing=True)
    EMBEDDER.closed = False
    service = MemoryService(
        store, settings, llm=open_llm(settings), embedder=EMBEDDER, actor=make_actor()
    )
    for session in list(store.host.sessions())[::-1]:
        await service.form_memories(session.id, consolidate=False)
    assert await service.consolidate_all()
    await service.assemble_context(next(iter(store.host.sessions())).id)


# -- the catalog -----------------------------------------------------------------------------

#: Checks whose damage is outside documents: see `test_surroundings`.
_OF_SURROUNDINGS = {
    "backups",
    "connection",
    "forgotten",  # see tests/platform/test_forgetting.py
    "former",
    "migrations",
    "schema",
    "permissions",
    "providers",
    "local-model",
}


def test_every_check_has_an_example_of_damage(on_sqlite: SqliteWard) -> None:
    made = {name for examination in EXAMINATIONS for name in examination.checks}
    assert made | {"connection", "schema", "providers"} == set(CATALOG)
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(__file__).parents[2] / "support").glob("damage.py")
    )
    assert {name for name in CATALOG if f'"{name}"' in code} == set(CATALOG) - _OF_SURROUNDINGS
    assert len({each.name for each in DAMAGES}) == len(DAMAGES)


def test_every_check_has_a_meaning_and_a_remedy() -> None:
    for check in CATALOG.values():
        assert check.title[0].islower()
        assert not check.title.endswith(".")
        assert check.meaning.endswith(".")
        assert check.remedy
        assert ("doctor --fix" in check.remedy) <= check.fixable


def test_an_unknown_check_suggests_similar_ones() -> None:
    assert select_checks(["hashes"]) == {"hashes"}
    with pytest.raises(UsageError, match="'hash'") as caught:
        select_checks(["hash"])
    assert "hashes" in str(caught.value.hint)
