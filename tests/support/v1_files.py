"""Write databases of v1 in the formats of mongodump, mongoexport and a server.

A database maps collections to documents. A document of type ``bytes`` is damaged, and is written
verbatim if possible.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import bson
from bson import json_util

Document = dict[str, Any] | bytes
Database = Mapping[str, list[Document]]

EjsonForm = Literal["lines", "array", "pretty"]


def write_dump(folder: Path, database: Database, *, gz: bool = False, name: str = "eden") -> Path:
    """Write a folder like ``mongodump --out`` (``--gzip``), and return the folder of the dump."""
    inside = folder / name
    inside.mkdir(parents=True, exist_ok=True)
    for collection, documents in database.items():
        raw = b"".join(each if isinstance(each, bytes) else bson.encode(each) for each in documents)
        metadata = {
            "indexes": [{"v": 2, "key": {"_id": 1}, "name": "_id_"}],
            "collectionName": collection,
            "type": "collection",
        }
        _write(inside / f"{collection}.bson", raw, gz)
        _write(inside / f"{collection}.metadata.json", json.dumps(metadata).encode(), gz)
    return folder


def write_ejson(
    folder: Path,
    database: Database,
    *,
    canonical: bool = False,
    form: EjsonForm = "lines",
    gz: bool = False,
) -> Path:
    """Write a file per collection like ``mongoexport``, without damaged documents."""
    folder.mkdir(parents=True, exist_ok=True)
    options = json_util.CANONICAL_JSON_OPTIONS if canonical else json_util.RELAXED_JSON_OPTIONS
    for collection, documents in database.items():
        kept = [each for each in documents if not isinstance(each, bytes)]
        indent = 2 if form == "pretty" else None
        texts = [json_util.dumps(each, json_options=options, indent=indent) for each in kept]
        text = f"[{','.join(texts)}]" if form == "array" else "\n".join(texts) + "\n"
        _write(folder / f"{collection}.json", text.encode(), gz)
    return folder


def load_into_mongo(database: Database, target: Any) -> None:
    """Insert all undamaged documents into a database of a server."""
    for collection, documents in database.items():
        kept = [dict(each) for each in documents if not isinstance(each, bytes)]
        if kept:
            target[collection].insert_many(kept)


def read_dump(folder: Path) -> dict[str, bytes]:
    """Return the unzipped content of the files of a dump."""
    return {
        path.relative_to(folder).as_posix(): (
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".md"
    }


def _write(path: Path, raw: bytes, gz: bool) -> None:
    if gz:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(raw, mtime=0))
    else:
        path.write_bytes(raw)


def count(database: Database, collections: Iterable[str]) -> dict[str, int]:
    """Count the documents of each collection."""
    return {name: len(database.get(name, ())) for name in collections}
