"""``migrate v1`` from BSON files: documents a second, and memory on the way."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Bench, Row, Target
from tests.benchmarks.v1_dump import make_dump
from tests.support.runtime import make_runtime

_RAW = "same documents, inserted as they are"
#: More than so many are not written to a server that is made for tests.
_SERVER_LIMIT = 100_000
_BATCH = 1000


def measure(bench: Bench) -> list[Row]:
    """Into SQLite and into a server on this machine; each way in a process of its own."""
    rows: list[Row] = []
    for kind in ("sqlite", "mongodb"):
        size = bench.size if kind == "sqlite" else min(bench.size, _SERVER_LIMIT)
        dump = bench.folder / f"v1-{size}" / "eden"
        if not dump.exists():
            make_dump(dump, size)
        results = {}
        for way in ("raw", "edenmem"):
            target = bench.folder / f"migrate-{kind}-{way}"
            printed = bench.python("-m", "tests.benchmarks.migrating", kind, way, dump, target)
            results[way] = json.loads(printed)
            shutil.rmtree(target, ignore_errors=True)
        rows += _rows(kind, size, results["edenmem"], results["raw"])
    bench.note(
        "migrate: reading, planning and moving without vectors, all of it timed; memory of the"
        " process (and of the server, where it is in it) at a quarter, at half and at the end;"
        " SQLite's page caches, 64 MiB for a connection, fill up on the way"
    )
    return rows


def _rows(kind: str, size: int, ours: dict[str, Any], raw: dict[str, Any]) -> list[Row]:
    into = "SQLite" if kind == "sqlite" else "SecantusDB"
    quarter, half, end = ours["memory"]
    agrees = ours["accounted"] == raw["documents"] == size
    found = [
        Row(
            f"migration of {size:,} v1 documents into {into}",
            "documents/s",
            ours["rate"],
            _RAW,
            raw["rate"],
            Target("figure", 3000, at_least=True) if kind == "sqlite" else None,
            agrees,
        )
    ]
    if kind == "sqlite":
        found.append(
            Row(
                f"memory from a quarter ({quarter:.0f}) over half ({half:.0f}) to the end",
                "MiB",
                max(0.0, end - quarter),
                _RAW,
                max(0.0, raw["memory"][2] - raw["memory"][0]),
                Target("figure", 64),
                agrees,
            )
        )
    return found


def main() -> None:
    """In the child: migrate, or insert, and print the rate and the memory on the way."""
    kind, way, dump, target = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
    target.mkdir(parents=True)
    work = _raw if way == "raw" else _migrate
    if kind == "sqlite":
        result = work(kind, dump, str(target / "memory.db"))
    else:
        from tests.support.mongo_server import secantus_server

        with secantus_server() as server:
            result = work(kind, dump, f"{server.uri.rstrip('/')}/bench")
    sys.stdout.write(json.dumps(result))


class _Watch:
    """Memory when so much of the work is done."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def __call__(self, done: int, total: int) -> None:
        from tests.benchmarks.memory import private

        for share in (0.25, 0.5, 1.0)[len(self.found) :]:
            if done >= total * share:
                self.found.append(private())


def _migrate(kind: str, dump: Path, target: str) -> dict[str, Any]:
    from edenmem.engine.factory import open_store, open_v1_plan
    from edenmem.engine.migration.reports import RunOptions
    from edenmem.engine.migration.run import V1Runner
    from edenmem.models.changes import Actor
    from edenmem.settings.schema import Settings, StoreSettings

    uri = f"sqlite:///{target}" if kind == "sqlite" else target
    settings = Settings(store=StoreSettings(uri=uri))
    store = open_store(settings)
    store.database.initialize()
    options = RunOptions()
    watch = _Watch()
    moved = threading.Event()
    seconds = 0.0

    def progress(step: str, done: int, total: int) -> None:
        nonlocal seconds
        if step == "moving":
            watch(done, total)
        elif not moved.is_set():  # what follows is the check, which is not timed
            moved.set()
            seconds = time.perf_counter() - begin

    begin = time.perf_counter()
    with open_v1_plan(settings, str(dump), options.v1) as plan:
        actor = Actor(name="bench", host="bench", command="migrate v1")
        runner = V1Runner(make_runtime(store, settings, actor=actor), plan, options)
        report = asyncio.run(runner.run(progress=progress))
    store.database.close()
    assert report.verification is not None
    documents = report.verification.documents
    complete = report.verification.complete
    return {
        "rate": documents / seconds,
        "memory": watch.found,
        "accounted": documents if complete else -1,
    }


def _raw(kind: str, dump: Path, target: str) -> dict[str, Any]:
    total = sum(1 for _ in _stored(dump))
    watch = _Watch()
    begin = time.perf_counter()
    done = 0
    insert = _into_file(target) if kind == "sqlite" else _into_server(target)
    next(insert)
    for batch in _batches(_stored(dump)):
        insert.send(batch)
        done += len(batch)
        watch(done, total)
    insert.close()
    return {
        "rate": total / (time.perf_counter() - begin),
        "memory": watch.found,
        "documents": total,
    }


def _stored(dump: Path) -> Iterator[tuple[str, Any]]:
    """The documents as they are in the files, not decoded beyond their id."""
    from bson.raw_bson import RawBSONDocument

    for file in sorted(dump.glob("*.bson")):
        with file.open("rb") as stream:
            while size := stream.read(4):
                rest = stream.read(int.from_bytes(size, "little") - 4)
                yield file.stem, RawBSONDocument(size + rest)


def _batches(rows: Iterator[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    while batch := list(itertools.islice(rows, _BATCH)):
        yield batch


def _into_file(target: str) -> Any:
    import sqlite3

    connection = sqlite3.connect(target, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE documents (id TEXT, collection TEXT, body BLOB)")
    connection.execute("CREATE UNIQUE INDEX documents_id ON documents (collection, id)")
    try:
        while True:
            batch = yield
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO documents VALUES (?, ?, ?)",
                [(str(raw["_id"]), collection, raw.raw) for collection, raw in batch],
            )
            connection.execute("COMMIT")
    finally:
        connection.close()


def _into_server(target: str) -> Any:
    from pymongo import MongoClient

    with MongoClient(target) as client:
        database = client.get_default_database()
        while True:
            batch = yield
            for collection, rows in itertools.groupby(batch, key=lambda row: row[0]):
                database[f"raw_{collection}"].insert_many([raw for _, raw in rows], ordered=False)


if __name__ == "__main__":
    main()
