"""The schema as the migrations make it, to compare a file with."""

from __future__ import annotations

import sqlite3
from functools import cache

import msgspec

from edenmem.store.common import migrations


class Part(msgspec.Struct, frozen=True):
    """A table, trigger or index that every file has: its table, and the statement that makes it."""

    type: str
    name: str
    table: str
    sql: str

    @property
    def is_unique(self) -> bool:
        """Whether it is an index that keeps duplicates out."""
        return self.sql.upper().startswith("CREATE UNIQUE")


class Schema(msgspec.Struct, frozen=True):
    """The parts of a new file by name, and the columns of its tables."""

    parts: dict[str, Part]
    columns: dict[str, frozenset[str]]


@cache
def schema() -> Schema:
    """What the migrations make; what SQLite and FTS5 make by themselves is left out."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for migration in migrations.migrations():
            migration.up("sqlite", connection)
        rows = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
        ).fetchall()
        virtual = [name for _, name, _, sql in rows if sql.startswith("CREATE VIRTUAL")]
        parts = {
            row[1]: Part(*row)
            for row in rows
            if not any(row[1].startswith(f"{table}_") for table in virtual)
        }
        tables = [part.name for part in parts.values() if part.type == "table"]
        return Schema(parts, {name: columns_of(connection, name) for name in tables})
    finally:
        connection.close()


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """The columns that a table has; none if it is not there."""
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
    return frozenset(name for (name,) in rows)
