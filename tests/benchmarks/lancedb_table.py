"""The baseline "LanceDB": its own hybrid search, with its full-text and scalar indexes.

As a program it answers one query in a new process: ``lancedb_table.py FOLDER QUERY.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: id, scope, content, milliseconds, vector.
Row = tuple[str, str, str, int, bytes | None]


def is_installed() -> bool:
    """Whether the extra ``bench`` is there."""
    return find_spec("lancedb") is not None


class Writer:
    """Fills a new table, then makes the indexes."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        import lancedb
        import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

        self._dimensions = dimensions
        self._schema = pa.schema(
            [
                ("id", pa.string()),
                ("scope", pa.string()),
                ("content", pa.string()),
                ("formed_at", pa.int64()),
                ("vector", pa.list_(pa.float32(), dimensions)),
            ]
        )
        self._table = lancedb.connect(str(folder)).create_table("facts", schema=self._schema)

    def add(self, rows: Iterable[Row]) -> None:
        """Append facts."""
        import numpy as np
        import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

        ids, scopes, contents, times, vectors = zip(*rows, strict=True)
        numbers = pa.array(np.frombuffer(b"".join(vectors), np.float32))
        columns = [
            pa.array(ids),
            pa.array(scopes),
            pa.array(contents),
            pa.array(times),
            pa.FixedSizeListArray.from_arrays(numbers, self._dimensions),
        ]
        self._table.add(pa.Table.from_arrays(columns, schema=self._schema))

    def finish(self) -> None:
        """Compact the table, make the indexes, and let go of what they replaced."""
        from lancedb.index import FTS, Bitmap

        self._table.optimize()
        self._table.create_index("scope", config=Bitmap())
        self._table.create_index("content", config=FTS(stem=True, remove_stop_words=True))
        self._table.optimize(cleanup_older_than=timedelta(milliseconds=1))


class Searcher:
    """Hybrid search with the default reranker, filtered before."""

    def __init__(self, folder: Path) -> None:
        import lancedb

        self._table: Any = lancedb.connect(str(folder)).open_table("facts")

    def search(self, text: str, vector: bytes, scopes: Iterable[str], top_k: int = 10) -> list[str]:
        """The ids of the best facts."""
        import numpy as np

        where = "scope IN ({})".format(", ".join(f"'{scope}'" for scope in scopes))
        found = (
            self._table.search(query_type="hybrid")
            .vector(np.frombuffer(vector, np.float32))
            .text(text)
            .distance_type("cosine")
            .where(where, prefilter=True)
            .limit(top_k)
            .to_arrow()
        )
        return [str(fact_id) for fact_id in found["id"].to_pylist()]


def main() -> None:
    """Answer the query of a file, as JSON."""
    query = json.loads(Path(sys.argv[2]).read_bytes())
    searcher = Searcher(Path(sys.argv[1]))
    ids = searcher.search(query["text"], bytes.fromhex(query["vector"]), query["scopes"])
    sys.stdout.write(json.dumps(ids))


if __name__ == "__main__":
    main()
