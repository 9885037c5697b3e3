"""Deleted content leaves the file: overwritten pages, a new full-text index, a new file, no log.

SQLite overwrites deleted rows (``secure_delete``), but the full-text index keeps words of deleted
facts in segments that were not merged yet, the log keeps older pages, and rows that moved to other
pages left copies behind. So the index is made anew, the file is rewritten, and the log is emptied.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import sqlite3

from edenmem.models.forgetting import Compaction
from edenmem.store.sqlite.core.faults import translate_errors
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.core.words import normalise_for_index, scope_word

#: What no command of ours reaches.
_BEYOND = (
    "copies and backups of the database file, and exports",
    "blocks that the disk or the file system gave free",
)
_HINT = "close whatever uses the file (a service, 'cold run --watch', a shell of sqlite3)"


class Compacting(Part):
    """See `edenmem.store.protocol.erasure.Erasing`."""

    def compact(self) -> Compaction:
        self._make_text_index_anew()
        with translate_errors(self._db.path):
            return self._rewrite()

    def _rewrite(self) -> Compaction:
        try:
            with self._db.alone() as connection:
                # The copy that is made on the way has none of what was deleted; it may be large.
                connection.execute("PRAGMA temp_store = FILE")
                connection.execute("VACUUM")
                connection.execute("PRAGMA temp_store = MEMORY")
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            return Compaction(done=False, left=f"another process uses the file: {_HINT}")
        if busy:
            return Compaction(
                done=False, left=f"another process reads an older state of the file: {_HINT}"
            )
        return Compaction(beyond=_BEYOND)

    def _make_text_index_anew(self) -> None:
        with self._db.writing() as connection:
            connection.execute("INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
            connection.create_function("indexed_form", 1, normalise_for_index, deterministic=True)
            connection.create_function("scope_word", 1, scope_word, deterministic=True)
            connection.execute(
                "INSERT INTO facts_text (rowid, scope, content)"
                " SELECT fact_no, scope_word(scope_id), indexed_form(content) FROM facts"
                " ORDER BY fact_no"
            )
            connection.execute("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
