"""A SqliteStore whose writing statements pass a switchboard, one by one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from edenmem.store.sqlite import SqliteStore
from tests.faults.points import Switchboard

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "COMMIT", "BEGIN IMMEDIATE")

_turn = count()


def _broken() -> sqlite3.OperationalError:
    """What SQLite raises for a broken disk and for a full one, in turn."""
    full = next(_turn) % 2 == 0
    error = sqlite3.OperationalError("database or disk is full" if full else "disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
    return error


class _Connection:
    """A connection behind a switchboard."""

    def __init__(self, raw: sqlite3.Connection, board: Switchboard) -> None:
        self._raw = raw
        self._board = board

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def execute(self, statement: str, *values: Any) -> Any:
        return self._statement(statement, lambda: self._raw.execute(statement, *values))

    def executemany(self, statement: str, rows: Any) -> Any:
        return self._statement(statement, lambda: self._raw.executemany(statement, rows))

    def _statement(self, statement: str, work: Any) -> Any:
        if not statement.startswith(_WRITES):
            return work()
        what = " ".join(statement.split()[:4]).partition("(")[0].strip()
        return self._board.call(what, work, _broken)


class BreakableSqlite(SqliteStore):
    """See the module."""

    def __init__(self, path: Path, board: Switchboard) -> None:
        super().__init__(path)
        connect: Callable[..., sqlite3.Connection] = self.connections._connect
        self.connections._connect = lambda **how: _Connection(connect(**how), board)  # type: ignore
