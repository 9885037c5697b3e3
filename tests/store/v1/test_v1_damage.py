"""Damaged input: readable documents are read, and damage is reported with its file and position."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import MongoClient

from edenmem.models.ids import new_id
from edenmem.models.v1 import V1Damage
from edenmem.models.v1 import V1DamageKind as Kind
from tests.support.v1_files import Database, load_into_mongo, write_dump, write_ejson
from tests.support.v1_plans import plan_of
from tests.support.v1_world import LENA, MIRA, account, memory, oid, shard, user_text

SESSIONS = "memory_sessions"


def _database() -> Database:
    """One intact document of each kind, with references to others."""
    listed = [oid(1, 0.1), oid(2, 0.2)]
    return {
        SESSIONS: [
            memory(1, "directive", "Use metric units.", users=[LENA]),
            memory(2, "directive", "Answer briefly.", users=[LENA]),
            memory(3, "episode", "Lena counted lanterns.", users=[LENA]),
        ],
        "memory_user": [user_text(30, LENA, "Lena is a painter.", unabsorbed_memory_ids=listed)],
        "memory_agent": [shard(oid(40), "Walk", "It starts at five.")],
        "users3": [account(MIRA, "agent", "mira"), account(LENA, "user", "lena")],
    }


def _found(folder: Path | str) -> tuple[list[V1Damage], int]:
    """The damage found, and the number of documents read."""
    with plan_of(folder) as plan:
        assert sum(len(item.sources) for item in plan.items()) >= sum(plan.about.totals.values())
        return list(plan.about.incomplete), sum(plan.about.totals.values())


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_dump(tmp_path, _database())
    return tmp_path / "eden"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return write_ejson(tmp_path, _database())


def _edit(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("write", [write_dump, write_ejson])
@pytest.mark.parametrize("gz", [False, True])
def test_intact_input_is_complete(tmp_path: Path, write: Any, gz: bool) -> None:
    assert _found(write(tmp_path, _database(), gz=gz)) == ([], 5)


@pytest.mark.parametrize("form", ["array", "pretty"])
def test_an_export_of_another_form_is_complete(tmp_path: Path, form: Any) -> None:
    write_ejson(tmp_path, {**_database(), "memory_agent": []}, form="array")
    assert _found(write_ejson(tmp_path, _database(), form=form)) == ([], 5)


class TestEndsEarly:
    @pytest.mark.parametrize("cut", [1, 3, 40, 10**6])
    def test_bson(self, dump: Path, cut: int) -> None:
        raw = (dump / f"{SESSIONS}.bson").read_bytes()
        last = len(bson.encode(memory(3, "episode", "Lena counted lanterns.", users=[LENA])))
        _edit(dump / f"{SESSIONS}.bson", lambda raw: raw[: -min(cut, last - 10)])
        ((damage,), documents) = _found(dump)
        assert (damage.kind, damage.where, documents) == (Kind.ENDS_EARLY, f"{SESSIONS}.bson", 4)
        assert damage.bytes == min(cut, last - 10)
        assert f"at byte {len(raw) - last:,}: {damage.bytes:,} bytes" in damage.detail
        assert "2 documents were read before it" in damage.detail

    def test_bson_that_ends_in_a_length(self, dump: Path) -> None:
        _edit(dump / f"{SESSIONS}.bson", lambda raw: raw + b"\x40\x00")
        ((damage,), _) = _found(dump)
        assert (damage.kind, damage.bytes) == (Kind.ENDS_EARLY, None)

    @pytest.mark.parametrize(
        "end", ["", "{", '{"_id"', '{"_id": ', '{"_id": {"$oid": "5', '{"_id": 1, "a": tru']
    )
    def test_json(self, export: Path, end: str) -> None:
        if not end:
            _edit(export / f"{SESSIONS}.json", lambda raw: raw.rstrip()[:-5])
        else:
            _edit(export / f"{SESSIONS}.json", lambda raw: raw + end.encode())
        ((damage,), _) = _found(export)
        assert (damage.kind, damage.where) == (Kind.ENDS_EARLY, f"{SESSIONS}.json")
        assert damage.places[0].startswith("line 4, byte" if end else "line 3, byte")

    @pytest.mark.parametrize("cut", [1, 2, 20])
    def test_an_array(self, tmp_path: Path, cut: int) -> None:
        write_ejson(tmp_path, _database(), form="array")
        _edit(tmp_path / f"{SESSIONS}.json", lambda raw: raw[:-cut])
        ((damage,), _) = _found(tmp_path)
        assert damage.kind is Kind.ENDS_EARLY

    @pytest.mark.parametrize("write", [write_dump, write_ejson])
    @pytest.mark.parametrize("cut", [1, 8, 30])
    def test_gzip(self, tmp_path: Path, write: Any, cut: int) -> None:
        """Also if all documents are complete, and only the end of the gzip is missing."""
        write(tmp_path, _database(), gz=True)
        (path,) = tmp_path.rglob(f"{SESSIONS}.[bj]son.gz")
        _edit(path, lambda raw: raw[:-cut])
        ((damage,), documents) = _found(tmp_path)
        assert (damage.kind, damage.where.endswith(path.name)) == (Kind.ENDS_EARLY, True)
        assert documents in (2, 3, 4) if cut > 8 else documents == 5

    def test_a_gzip_whose_bytes_are_wrong(self, dump: Path) -> None:
        path = dump / f"{SESSIONS}.bson"
        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        _edit(path, lambda raw: raw[:-8] + bytes(8))
        ((damage,), documents) = _found(dump)
        assert (damage.kind, damage.documents, documents) == (Kind.UNREADABLE, None, 5)
        assert "is damaged at byte" in damage.detail
        assert "the gzip data is damaged" in damage.detail

    def test_accounts(self, dump: Path) -> None:
        _edit(dump / "users3.bson", lambda raw: raw[:-10])
        ((damage,), _) = _found(dump)
        assert (damage.kind, damage.collection) == (Kind.ENDS_EARLY, "users3")


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0)])
def test_an_empty_file(dump: Path, content: bytes) -> None:
    (dump / "memory_agent.bson").write_bytes(content)
    ((damage,), _) = _found(dump)
    assert (damage.kind, damage.where) == (Kind.EMPTY, "memory_agent.bson")


def test_an_empty_export_but_not_an_empty_array(export: Path) -> None:
    (export / "memory_agent.json").write_text("[]\n")
    assert _found(export)[0] == []
    (export / "memory_agent.json").write_text(" \n")
    assert [damage.kind for damage in _found(export)[0]] == [Kind.EMPTY]


class TestUnreadable:
    def test_a_wrong_length_ends_the_file(self, dump: Path) -> None:
        first = len(bson.encode(_database()[SESSIONS][0]))
        _edit(
            dump / f"{SESSIONS}.bson",
            lambda raw: raw[:first] + b"\xff\xff\xff\x0f" + raw[first + 4 :],
        )
        ((damage,), documents) = _found(dump)
        assert (damage.kind, damage.documents, documents) == (Kind.UNREADABLE, None, 3)
        assert damage.places == (f"byte {first:,}",)
        assert "1 document was read before it, and nothing after it" in damage.detail

    def test_a_broken_line_of_json_ends_the_file(self, export: Path) -> None:
        _edit(export / f"{SESSIONS}.json", lambda raw: raw + b'{"_id": oops}\n' + raw)
        ((damage,), documents) = _found(export)
        assert (damage.kind, damage.documents, documents) == (Kind.UNREADABLE, None, 5)
        assert damage.places[0].startswith("line 4, byte")
        assert "not Extended JSON: Expecting value; 3 documents were read" in damage.detail

    def test_bytes_that_are_no_utf8(self, dump: Path) -> None:
        _edit(dump / f"{SESSIONS}.bson", lambda raw: raw.replace(b"lanterns", b"lant\xe9rns"))
        ((damage,), _) = _found(dump)
        assert (damage.kind, damage.places) == (Kind.INVALID_UTF8, (str(oid(3, 0.3)),))

    def test_wrong_types(self, tmp_path: Path) -> None:
        database = _database()
        database[SESSIONS][2] |= {"content": 5}  # type: ignore[operator]
        ((damage,), _) = _found(write_dump(tmp_path, database))
        assert (damage.kind, damage.places) == (Kind.WRONG_TYPE, (str(oid(3, 0.3)),))

    def test_repeated_ids(self, tmp_path: Path) -> None:
        database = _database()
        database[SESSIONS].extend(database[SESSIONS][2:])
        ((damage,), _) = _found(write_dump(tmp_path, database))
        assert (damage.kind, damage.documents) == (Kind.DUPLICATE_ID, 1)
        assert damage.places == (f"{oid(3, 0.3)}#2",)


class TestNotCut:
    """Damage that is not a truncation is reported as such."""

    @pytest.mark.parametrize(
        ("end", "why"),
        [
            ("hello\n", "Expecting value"),
            ("}\n", "Expecting value"),
            ('{"_id": 1, oops                   \n', "Expecting property name"),
            ('{"_id": no                        \n', "Expecting value"),
        ],
    )
    @pytest.mark.parametrize("alone", [False, True])
    def test_json(self, export: Path, end: str, why: str, alone: bool) -> None:
        _edit(export / f"{SESSIONS}.json", lambda raw: (b"" if alone else raw) + end.encode())
        damage = _found(export)[0][0]
        assert damage.kind is Kind.UNREADABLE
        assert damage.places[0].startswith("line 1," if alone else "line 4,")
        assert why in damage.detail

    def test_a_single_value_is_no_document(self, export: Path) -> None:
        _edit(export / f"{SESSIONS}.json", lambda raw: raw + b"true\n")
        ((damage,), documents) = _found(export)
        assert (damage.kind, damage.documents, documents) == (Kind.UNREADABLE, 1, 6)

    @pytest.mark.parametrize("end", [b"hello\n", bytes(100)])
    def test_bson(self, dump: Path, end: bytes) -> None:
        _edit(dump / f"{SESSIONS}.bson", lambda raw: raw + end)
        ((damage,), documents) = _found(dump)
        assert (damage.kind, documents) == (Kind.UNREADABLE, 5)
        assert "not BSON" in damage.detail

    @pytest.mark.parametrize("write", [write_dump, write_ejson])
    def test_bytes_behind_a_gzip(self, tmp_path: Path, write: Any) -> None:
        write(tmp_path, _database(), gz=True)
        (path,) = tmp_path.rglob(f"{SESSIONS}.[bj]son.gz")
        _edit(path, lambda raw: raw + b"hello\n")
        ((damage,), documents) = _found(tmp_path)
        assert (damage.kind, damage.documents, documents) == (Kind.UNREADABLE, None, 5)
        assert "followed by data that is not gzip" in damage.detail

    def test_a_gzip_that_is_damaged_in_the_middle(self, tmp_path: Path) -> None:
        write_dump(tmp_path, _database(), gz=True)
        (path,) = tmp_path.rglob(f"{SESSIONS}.bson.gz")
        _edit(path, lambda raw: raw[:100] + bytes(40) + raw[140:])
        kinds = {damage.kind for damage in _found(tmp_path)[0] if SESSIONS in damage.where}
        assert kinds == {Kind.UNREADABLE}


class TestMissing:
    def test_metadata_without_documents(self, dump: Path) -> None:
        (dump / "memory_agent.bson").unlink()
        ((damage,), _) = _found(dump)
        assert (damage.kind, damage.where) == (Kind.NO_DATA, "memory_agent.metadata.json")

    @pytest.mark.parametrize(
        ("collection", "documents"), [(SESSIONS, 2), ("memory_user", 1), ("memory_agent", None)]
    )
    def test_a_collection_that_others_refer_to(
        self, export: Path, collection: str, documents: int | None
    ) -> None:
        """Nothing here refers to a shard, so an agent without shards is complete."""
        (export / f"{collection}.json").unlink()
        found = [(damage.kind, damage.where, damage.documents) for damage in _found(export)[0]]
        assert found == ([(Kind.NO_COLLECTION, collection, documents)] if documents else [])

    def test_a_shard_that_a_fact_refers_to(self, tmp_path: Path) -> None:
        database = {SESSIONS: [memory(1, "fact", "The tide turns.", shard=oid(40))]}
        ((damage,), _) = _found(write_dump(tmp_path, database))
        assert (damage.kind, damage.where) == (Kind.NO_COLLECTION, "memory_agent")

    @pytest.mark.parametrize("shards", [{}, {"memory_agent": []}])
    @pytest.mark.parametrize("named", [oid(40), None])
    def test_facts_without_their_shard_were_not_let_go_of(
        self, tmp_path: Path, shards: Database, named: Any
    ) -> None:
        facts = [memory(1, "fact", "The tide turns.", shard=named)]
        with plan_of(write_dump(tmp_path, {SESSIONS: facts, **shards})) as plan:
            (item,) = plan.items()
        assert item.reason == "facts of shards without a document"

    def test_facts_that_a_shard_does_not_list_were_let_go_of(self, tmp_path: Path) -> None:
        facts = [
            memory(n, "fact", f"{n} lamps.", shard=named) for n, named in ((1, oid(40)), (2, None))
        ]
        database = {SESSIONS: facts, "memory_agent": [shard(oid(40), "Walk", "At five.")]}
        with plan_of(write_dump(tmp_path, database)) as plan:
            found = [item.reason for item in plan.items() if item.kind == "leftover"]
        assert found == ["facts dropped by their shards"] * 2


@pytest.mark.slow
def test_a_live_database(secantus_uri: str) -> None:
    database = _database()
    database[SESSIONS][2] |= {"agent_id": 5}  # type: ignore[operator]
    name = f"v1_{new_id()}"
    with MongoClient[Any](secantus_uri) as client:
        load_into_mongo(database, client[name])
        try:
            ((damage,), documents) = _found(f"{secantus_uri.rstrip('/')}/{name}")
            assert (damage.kind, damage.where, documents) == (Kind.WRONG_TYPE, SESSIONS, 5)
        finally:
            client.drop_database(name)
