"""A file with the vectors of earlier queries, for commands that run as new processes.

The file holds no query text: the key of a vector is the SHA-256 of its model and text. The file has
mode 0600 and a maximum number of vectors, least recently used first out, and may be used by several
processes. If the file is unusable, queries are embedded without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from edenmem.settings.paths import open_private

_WAIT_SECONDS = 0.25
_TABLE = (
    "CREATE TABLE IF NOT EXISTS vectors"
    " (key BLOB PRIMARY KEY, used INTEGER NOT NULL, vector BLOB NOT NULL) WITHOUT ROWID"
)


class QueryFile:
    """Up to ``size`` vectors in the file at ``path``, which is created on demand.

    ``space`` distinguishes models of one name at different endpoints.
    """

    def __init__(self, path: Path, *, size: int, space: str = "") -> None:
        self._path = path
        self._size = size
        self._space = space

    def get(self, model: str, texts: Sequence[str]) -> dict[str, bytes]:
        """Return the known vectors of the texts, of this model."""
        found: dict[str, bytes] = {}
        if not self._path.exists():
            return found
        with contextlib.suppress(OSError, sqlite3.Error), self._open() as connection:
            for text in texts:
                key = self._key(model, text)
                row = connection.execute(
                    "UPDATE vectors SET used = ? WHERE key = ? RETURNING vector",
                    (time.time_ns(), key),
                ).fetchone()
                if row is not None:
                    found[text] = row[0]
        return found

    def put(self, model: str, vectors: Mapping[str, bytes]) -> None:
        """Store the vectors of texts; remove the least recently used above the maximum."""
        with contextlib.suppress(OSError, sqlite3.Error), self._open() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                [(self._key(model, text), time.time_ns(), vectors[text]) for text in vectors],
            )
            connection.execute(
                "DELETE FROM vectors WHERE key IN"
                " (SELECT key FROM vectors ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (self._size,),
            )

    def clear(self) -> None:
        """Remove all vectors; their bytes are overwritten."""
        if not self._path.exists():
            return
        try:
            with self._open() as connection:
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("DELETE FROM vectors")
        except sqlite3.Error:  # damaged, or locked for long: created again on demand
            self._path.unlink(missing_ok=True)

    def _key(self, model: str, text: str) -> bytes:
        whole = "\0".join((self._space, model, text))
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created here with the right mode, which SQLite copies to the journal.
        os.close(open_private(self._path, os.O_CREAT | os.O_RDWR))
        connection = sqlite3.connect(self._path, timeout=_WAIT_SECONDS)
        try:
            with connection:
                connection.execute(_TABLE)
                yield connection
        finally:
            connection.close()
