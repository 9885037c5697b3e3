"""Copy the readable rows of a damaged file into a new one, and list the others.

A table is read in the order of its rows, without indexes, which may be damaged too. Where a page
cannot be read, the next readable row is searched for.
"""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from edenmem.models.integrity import Finding
from edenmem.store.sqlite.core.codec import Row
from edenmem.store.sqlite.core.schema import schema
from edenmem.store.sqlite.core.words import rebuild_text_index

#: The ledger of the schema, which a new file has.
_LEDGER = "migrations"
#: Derived from other tables, or a cache: losing rows loses no memory.
DERIVED = frozenset({"vector_codes", "cached_contexts"})
#: Above all row numbers of a table.
_END = 2**62


def copy_readable(damaged: sqlite3.Connection, new: sqlite3.Connection) -> Iterator[Finding]:
    """Copy all readable rows; yield the ranges of rows that cannot be read."""
    parts = schema().parts.values()
    triggers = [part for part in parts if part.type == "trigger"]
    damaged.text_factory = lambda raw: raw.decode(errors="replace")
    new.execute("PRAGMA foreign_keys = OFF")
    new.execute("BEGIN IMMEDIATE")
    for trigger in triggers:
        new.execute(f"DROP TRIGGER {trigger.name}")
    for part in parts:
        is_virtual = part.sql.startswith("CREATE VIRTUAL")
        if part.type == "table" and part.name != _LEDGER and not is_virtual:
            yield from _Table(damaged, new, part.name, "WITHOUT ROWID" in part.sql).copy()
    for trigger in triggers:
        new.execute(trigger.sql)
    rebuild_text_index(new)
    new.execute("COMMIT")
    broken = Counter((row[0], row[2]) for row in new.execute("PRAGMA foreign_key_check"))
    for (table, parent), count in broken.items():
        yield _lost(table, f"rows that refer to missing rows of {parent}: {count:,}")


def _lost(table: str, detail: str) -> Finding:
    return Finding(target_type="table", target_id=table, detail=detail)


class _Table:
    def __init__(
        self, damaged: sqlite3.Connection, new: sqlite3.Connection, name: str, has_key: bool
    ) -> None:
        self._damaged = damaged
        self._new = new
        self._name = name
        columns = new.execute("SELECT name, pk FROM pragma_table_info(?)", (name,)).fetchall()
        names = ", ".join(f'"{column}"' for column, _ in columns)
        marks = ", ".join("?" * len(columns))
        self._insert = f"INSERT OR IGNORE INTO {name} ({names}) VALUES ({marks})"
        self._select = f"SELECT {names} FROM {name} NOT INDEXED"
        self._numbered = f"SELECT rowid, {names} FROM {name} NOT INDEXED WHERE rowid > ?"
        self._key = [column for column, place in sorted(columns, key=lambda c: c[1]) if place]
        self._has_key = has_key

    def copy(self) -> Iterator[Finding]:
        """Copy the readable rows, and yield the others."""
        self._new.execute(f"DELETE FROM {self._name}")
        yield from self._copy_by_key() if self._has_key else self._copy_by_number()

    def _put(self, row: Row) -> Iterator[Finding]:
        try:
            if self._new.execute(self._insert, row).rowcount:
                return
            why = "it repeats the key of another row"
        except sqlite3.Error as error:
            why = str(error)
        yield _lost(self._name, f"a row is not valid: {why}")

    def _copy_by_key(self) -> Iterator[Finding]:
        """Copy a table without row numbers from both of its ends."""
        failures = 0
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{column} {direction}" for column in self._key)
            try:
                for row in self._damaged.execute(f"{self._select} ORDER BY {order}"):
                    self._new.execute(self._insert, row)
            except sqlite3.Error as error:
                failures += 1
                if failures == 2:
                    found = self._new.execute(f"SELECT count(*) FROM {self._name}").fetchone()[0]
                    detail = f"all rows but {found:,} cannot be read: {error}"
                    yield _lost(self._name, detail)
            else:
                if failures:
                    yield _lost(self._name, "rows cannot be read")
                return

    def _copy_by_number(self) -> Iterator[Finding]:
        last = -1
        while True:
            try:
                for number, *row in self._damaged.execute(
                    f"{self._numbered} ORDER BY rowid", (last,)
                ):
                    if number <= last:  # a damaged page is read twice
                        break
                    last = number
                    yield from self._put(tuple(row))
                else:
                    return
            except sqlite3.Error:
                pass
            following = self._find_after(last)
            if following is None:
                yield _lost(self._name, f"all rows after {last} cannot be read")
                return
            count = following - last - 1
            yield _lost(
                self._name,
                f"rows {last + 1} to {following - 1} cannot be read: at most {count:,}",
            )
            last = following - 1

    def _find_after(self, last: int) -> int | None:
        """Return the next readable row after an unreadable one; None if there is none."""
        step = 1
        while not self._reads(last + step):
            step *= 2
            if last + step >= _END:
                return None
        between = range(last + step // 2 + 1, last + step)
        high = step // 2 + 1 + bisect_left(between, True, key=self._reads)
        row = self._damaged.execute(
            f"{self._numbered} ORDER BY rowid LIMIT 1", (last + high,)
        ).fetchone()
        return None if row is None else max(int(row[0]), last + high + 1)

    def _reads(self, after: int) -> bool:
        try:
            self._damaged.execute(f"{self._numbered} ORDER BY rowid LIMIT 1", (after,)).fetchone()
        except sqlite3.Error:
            return False
        return True
