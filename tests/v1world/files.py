"""Dumps with damaged files, and a folder of which nobody can tell what is meant.

A case writes a folder and says which file is not whole.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import bson

from tests.v1world.world import Database, write_dump, write_extended_json

#: The cases that a damaged dump has, all of them whole in themselves.
CASES = ("active_shard", "texts_of_two_users", "pending_directives_in_order")

Write = Callable[[Path, Database], str]


INCOMPLETE: dict[str, Write] = {}


def incomplete(write: Write) -> Write:
    """Note a dump of which a part is gone: the run says so and ends with 1."""
    INCOMPLETE[write.__name__] = write
    return write


def _cut(path: Path, share: float) -> str:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    return path.name


def _zip(path: Path) -> Path:
    zipped = path.with_name(f"{path.name}.gz")
    zipped.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return zipped


# -- a part is gone ------------------------------------------------------------------------------


@incomplete
def bson_ends_early(folder: Path, database: Database) -> str:
    return _cut(write_dump(folder, database) / "memory_sessions.bson", 0.7)


@incomplete
def bson_ends_in_its_first_document(folder: Path, database: Database) -> str:
    return _cut(write_dump(folder, database) / "memory_user.bson", 0.01)


@incomplete
def bson_is_empty(folder: Path, database: Database) -> str:
    return _cut(write_dump(folder, database) / "memory_user.bson", 0)


@incomplete
def bson_of_zeros(folder: Path, database: Database) -> str:
    path = write_dump(folder, database) / "memory_user.bson"
    path.write_bytes(bytes(path.stat().st_size))
    return path.name


@incomplete
def bson_of_the_accounts_ends_early(folder: Path, database: Database) -> str:
    return _cut(write_dump(folder, database) / "users3.bson", 0.6)


@incomplete
def gzip_ends_early(folder: Path, database: Database) -> str:
    return _cut(_zip(write_dump(folder, database) / "memory_sessions.bson"), 0.7)


@incomplete
def gzip_is_empty(folder: Path, database: Database) -> str:
    return _cut(_zip(write_dump(folder, database) / "memory_user.bson"), 0)


@incomplete
def gzip_of_nothing(folder: Path, database: Database) -> str:
    path = write_dump(folder, database) / "memory_user.bson"
    path.write_bytes(b"")
    return _zip(path).name


@incomplete
def unreadable_document(folder: Path, database: Database) -> str:
    """A type that BSON does not have, in the middle of a file that is whole otherwise."""
    path = write_dump(folder, database) / "memory_sessions.bson"
    documents = [bson.encode(each) for each in database["memory_sessions"]]
    assert documents[1].count(b"\x02content\x00") == 1
    documents[1] = documents[1].replace(b"\x02content\x00", b"\x66content\x00")
    path.write_bytes(b"".join(documents))
    return path.name


@incomplete
def document_with_a_wrong_length(folder: Path, database: Database) -> str:
    path = write_dump(folder, database) / "memory_sessions.bson"
    documents = [bson.encode(each) for each in database["memory_sessions"]]
    documents[1] = (len(documents[1]) - 7).to_bytes(4, "little") + documents[1][4:]
    path.write_bytes(b"".join(documents))
    return path.name


@incomplete
def hole_in_the_middle(folder: Path, database: Database) -> str:
    path = write_dump(folder, database) / "memory_sessions.bson"
    raw = path.read_bytes()
    start = len(raw) // 3
    path.write_bytes(raw[:start] + bytes(700) + raw[start + 700 :])
    return path.name


@incomplete
def json_lines_end_early(folder: Path, database: Database) -> str:
    write_extended_json(folder, database, canonical=False, array=False)
    return _cut(folder / "memory_sessions.json", 0.7)


@incomplete
def json_array_ends_early(folder: Path, database: Database) -> str:
    write_extended_json(folder, database, canonical=True, array=True)
    return _cut(folder / "memory_sessions.json", 0.7)


@incomplete
def json_array_without_its_end(folder: Path, database: Database) -> str:
    """Every document that is there is whole; that there were no more is not said."""
    write_extended_json(folder, database, canonical=False, array=True)
    path = folder / "memory_sessions.json"
    path.write_text(path.read_text("utf-8").rstrip().removesuffix("]"), "utf-8")
    return path.name


@incomplete
def json_is_empty(folder: Path, database: Database) -> str:
    write_extended_json(folder, database, canonical=False, array=False)
    return _cut(folder / "memory_user.json", 0)


@incomplete
def json_with_an_unreadable_line(folder: Path, database: Database) -> str:
    write_extended_json(folder, database, canonical=False, array=False)
    path = folder / "memory_sessions.json"
    lines = path.read_text("utf-8").splitlines()
    lines[1] = lines[1].replace('"content": "', '"content": ', 1)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path.name


def collections_of_two_databases(folder: Path, database: Database) -> None:
    """Write files that do not belong together, though no collection is there twice."""
    both = ("memory_user", "memory_agent")
    _named(folder, "eden", {name: all for name, all in database.items() if name not in both})
    _named(folder, "prod", {name: database[name] for name in both})


def _named(folder: Path, name: str, database: Database) -> None:
    """Write files as mongoexport users call them, after their database."""
    write_extended_json(folder, database, canonical=False, array=False)
    for collection in database:
        (folder / f"{collection}.json").rename(folder / f"{name}.{collection}.json")
