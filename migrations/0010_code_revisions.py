"""Add a revision to each scope that changes unless codes are only appended.

SQLite: a search with the codes of a scope in memory reads only appended codes, and all codes after
a removal or insertion in between. Triggers maintain the revision for all writes. MongoDB: nothing;
it has no codes.
"""

from __future__ import annotations

from typing import Any

_BUMP = "UPDATE scopes SET codes_revision = codes_revision + 1 WHERE scope_id ="
#: Codes of a scope and model are sorted by the number of their facts.
_BETWEEN = """
    NEW.fact_no < (
        SELECT max(fact_no) FROM vector_codes
        WHERE scope_id = NEW.scope_id AND model_id = NEW.model_id
    )
"""

_TRIGGERS = {
    "vector_codes_gone": f"AFTER DELETE ON vector_codes BEGIN {_BUMP} OLD.scope_id; END",
    "vector_codes_changed": f"AFTER UPDATE ON vector_codes BEGIN {_BUMP} OLD.scope_id; END",
    "vector_codes_between": "AFTER INSERT ON vector_codes WHEN"
    f" {_BETWEEN} BEGIN {_BUMP} NEW.scope_id; END",
}


def up_sqlite(connection: Any) -> None:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(scopes)")}
    if "codes_revision" not in columns:
        connection.execute(
            "ALTER TABLE scopes ADD COLUMN codes_revision INTEGER NOT NULL DEFAULT 0"
        )
    for name, rule in _TRIGGERS.items():
        connection.execute(f"CREATE TRIGGER IF NOT EXISTS {name} {rule}")


def down_sqlite(connection: Any) -> None:
    for name in _TRIGGERS:
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    columns = {row[1] for row in connection.execute("PRAGMA table_info(scopes)")}
    if "codes_revision" in columns:
        connection.execute("ALTER TABLE scopes DROP COLUMN codes_revision")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    """Do nothing; see the module."""
