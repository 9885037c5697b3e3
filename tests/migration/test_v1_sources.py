"""Where v1 is read from: the same data give the same items, and nothing is written anywhere."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bson import ObjectId
from pymongo import MongoClient, monitoring

from edenmem.errors import InputError, NotFoundError, StoreError, UsageError
from edenmem.models.ids import new_id
from edenmem.models.v1 import Outcome, V1Item
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.settings.schema import StoreSettings
from edenmem.store.v1.live import LiveSource
from edenmem.store.v1.source import open_source
from tests.support.v1_files import Database, load_into_mongo, write_dump, write_ejson
from tests.support.v1_plans import items_of, plan_of
from tests.support.v1_world import EXAMPLE, memory, world

pytestmark = pytest.mark.slow


def intact() -> Database:
    """The community's memory without what is damaged, and with one document for each id."""
    return {
        name: [
            each
            for each in documents
            if not isinstance(each, bytes) and type(each["_id"]) is not str
        ]
        for name, documents in world().items()
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[V1Item]:
    return items_of(write_dump(tmp_path_factory.mktemp("dump"), intact()))


def _as_exported(item: V1Item) -> V1Item:
    """The item without notes on ids that are dicts: in JSON every id is one."""
    told = tuple(
        problem
        for problem in item.problems
        if problem.kind is not Kind.ID_AS_TEXT or "dict" not in problem.detail
    )
    return msgspec.structs.replace(item, problems=told)


class TestFiles:
    @pytest.mark.parametrize("gz", [False, True], ids=["plain", "gzipped"])
    def test_a_dump(self, tmp_path: Path, expected: list[V1Item], gz: bool) -> None:
        dump = write_dump(tmp_path, intact(), gz=gz)
        assert items_of(dump) == expected
        assert items_of(dump / "eden") == expected, "the database's own folder does as well"

    @pytest.mark.parametrize("gz", [False, True], ids=["plain", "gzipped"])
    @pytest.mark.parametrize("form", ["lines", "array", "pretty"])
    @pytest.mark.parametrize("canonical", [False, True], ids=["relaxed", "canonical"])
    def test_extended_json(
        self, tmp_path: Path, expected: list[V1Item], canonical: bool, form: Any, gz: bool
    ) -> None:
        write_ejson(tmp_path, intact(), canonical=canonical, form=form, gz=gz)
        assert [_as_exported(item) for item in items_of(tmp_path)] == [
            _as_exported(item) for item in expected
        ]

    @pytest.mark.parametrize(
        "name", ["memory_sessions.bson", "eden.memory_sessions.json", "x.json"]
    )
    def test_one_file(self, tmp_path: Path, name: str) -> None:
        """Named after its collection, or telling it by its fields."""
        database = {"memory_sessions": intact()["memory_sessions"]}
        write_dump(tmp_path, database)
        write_ejson(tmp_path, database)
        given = tmp_path / "eden/memory_sessions.bson"
        if name.endswith(".json"):
            given = (tmp_path / "memory_sessions.json").rename(tmp_path / name)
        with plan_of(given) as plan:
            assert dict(plan.about.totals) == {
                "memory_user": 0,
                "memory_agent": 0,
                "memory_sessions": len(database["memory_sessions"]),
            }

    def test_a_folder_of_two_databases(self, tmp_path: Path) -> None:
        write_dump(tmp_path, intact(), name="eden")
        write_dump(tmp_path, intact(), name="eden_staging")
        with pytest.raises(UsageError, match="eden, eden_staging"):
            items_of(tmp_path)

    def test_a_folder_without_v1(self, tmp_path: Path) -> None:
        write_dump(tmp_path, {"messages": []})
        with pytest.raises(InputError, match="memory_user"):
            items_of(tmp_path)

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError):
            items_of(tmp_path / "nowhere")

    def test_an_archive_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "memory_user.bson.gz"
        path.write_bytes(gzip.compress(b"\x6d\xe2\x99\x81" + bytes(100), mtime=0))
        with pytest.raises(InputError, match="a mongodump archive") as caught:
            items_of(path)
        assert "mongorestore --archive=" in (caught.value.hint or "")

    def test_utf16_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "memory_user.json"
        path.write_text('{"_id": 1}', encoding="utf-16")
        with pytest.raises(InputError, match="UTF-16") as caught:
            items_of(tmp_path)
        assert "iconv -f UTF-16" in (caught.value.hint or "")

    def test_collections_of_2025_are_read(self, tmp_path: Path, expected: list[V1Item]) -> None:
        older = {"memory_sessions": "session_memories", "memory_agent": "agent_memories"}
        database = {older.get(name, name): each for name, each in intact().items()}
        assert items_of(write_dump(tmp_path, database)) == expected

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "memory.csv"
        path.write_text("a,b")
        with pytest.raises(InputError, match="neither BSON nor JSON"):
            items_of(path)

    def test_documents_that_tell_nothing_are_accounted_for(self, tmp_path: Path) -> None:
        path = tmp_path / "export.json"
        path.write_text('{"_id": 1}\n{"_id": 2, "memory_type": "fact"}\n')
        assert [item.outcome for item in items_of(path)] == [Outcome.BAD] * 2

    def test_a_damaged_gzip_is_read_as_far_as_it_goes(self, tmp_path: Path) -> None:
        inside = write_dump(tmp_path, intact(), gz=True) / "eden"
        path = inside / "memory_sessions.bson.gz"
        path.write_bytes(path.read_bytes()[:-200])
        items = items_of(tmp_path)
        assert any(item.kind == "episode" or item.kind == "fact" for item in items)

    def test_bytes_in_json_that_are_no_utf8(self, tmp_path: Path) -> None:
        write_ejson(tmp_path, {"memory_sessions": [memory(1, "episode", "fog~horn")]})
        path = tmp_path / "memory_sessions.json"
        path.write_bytes(path.read_bytes().replace(b"~", b"\xff"))
        (item,) = items_of(path, episodes="keep")
        assert [problem.kind for problem in item.problems] == [Kind.INVALID_UTF8]
        assert "fog\ufffdhorn" in str(item.memory)

    def test_the_example_can_be_counted_beforehand(self) -> None:
        """What progress is measured by is known first, and is what then comes."""
        told: list[tuple[int, int]] = []
        from edenmem.engine.factory import open_v1_plan
        from edenmem.models.v1 import V1Options
        from edenmem.settings.schema import Settings

        with open_v1_plan(
            Settings(), str(EXAMPLE), V1Options(), progress=lambda *step: told.append(step)
        ) as plan:
            total = sum(plan.about.totals.values())
        assert told == [(total, total)]


def test_the_temporary_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of anybody's memory is left behind, whatever ends the process."""
    from edenmem.engine.factory import open_v1_plan
    from edenmem.models.v1 import V1Options
    from edenmem.settings.schema import Settings

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open_v1_plan(Settings(), str(EXAMPLE), V1Options()) as plan:
        assert list(tmp_path.iterdir()) == []
        assert sum(1 for _ in plan.items()) > 40


def test_the_configured_store_is_the_source_if_it_is_a_mongodb() -> None:
    with pytest.raises(UsageError, match="no source"):
        open_source(None, StoreSettings(uri="sqlite:///memory.db"))


# -- live ----------------------------------------------------------------------------------------

#: The only commands that may be sent; those of the connection itself are not told to listeners.
_READING = {
    "find",
    "getMore",
    "count",
    "listCollections",
    "aggregate",
    "collStats",
    "killCursors",
    "endSessions",
}


class _Commands(monitoring.CommandListener):
    def __init__(self) -> None:
        self.sent: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.sent.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


@pytest.fixture
def live(secantus_uri: str) -> Any:
    """A database of its own on a server, with the community's memory of v1 in it."""
    name = f"v1_{new_id()}"
    with MongoClient[Any](secantus_uri) as client:
        load_into_mongo(intact(), client[name])
        yield client[name]
        client.drop_database(name)


class TestLive:
    def test_gives_the_same_items(
        self, live: Any, secantus_uri: str, expected: list[V1Item]
    ) -> None:
        uri = secantus_uri.rstrip("/").partition("/?")[0]
        assert items_of(f"{uri}/{live.name}") == expected

    def test_is_never_written(self, live: Any, secantus_uri: str) -> None:
        """Known failure 43 and its kin: what is read cannot be harmed. Only these commands go."""
        listener = _Commands()
        before = {name: list(live[name].find()) for name in live.list_collection_names()}
        with MongoClient[Any](secantus_uri, event_listeners=[listener]) as client:
            source = LiveSource(secantus_uri, StoreSettings(), database=live.name, client=client)
            assert source.size() == sum(1 for _ in source.documents(str))
            assert sum(1 for _ in source.accounts()) == 8
        assert set(listener.sent) <= _READING
        assert {"find", "count", "listCollections"} <= set(listener.sent)
        assert before == {name: list(live[name].find()) for name in live.list_collection_names()}

    def test_a_database_without_v1(self, secantus_uri: str) -> None:
        with pytest.raises(InputError, match="no v1 memory"):
            LiveSource(secantus_uri, StoreSettings(), database=f"empty_{ObjectId()}")

    def test_a_server_that_is_not_there(self) -> None:
        settings = StoreSettings(connect_timeout_seconds=0.2)
        with pytest.raises(StoreError, match="cannot reach"):
            open_source("mongodb://127.0.0.1:9/eden", settings)
