"""Mark sessions without work for the cold run, so that it skips them.

SQLite: ``sessions.settled`` is the version of the rules by which a session has no work. Triggers
clear the mark, in the same transaction, on every change that may add work. ``stirred`` counts these
changes, so that marks from an earlier read are rejected. MongoDB: a separate collection, whose
index is declared as data.
"""

# ruff: noqa: S608 - statements contain constants only.

from __future__ import annotations

from typing import Any

_COLUMNS = {
    "stirred": "ALTER TABLE sessions ADD COLUMN stirred INTEGER NOT NULL DEFAULT 0",
    "settled": "ALTER TABLE sessions ADD COLUMN settled TEXT",
    "quiet_since": "ALTER TABLE sessions ADD COLUMN quiet_since INTEGER"
    " GENERATED ALWAYS AS (coalesce(last_activity, -1)) VIRTUAL",
}

_WITH_AGENT = (
    "id IN (SELECT session_id FROM session_members WHERE member_id = NEW.id AND role = 'agent')"
)

#: Trigger → the event, and the sessions that it affects.
_TRIGGERS = {
    "stirred_by_message": ("AFTER INSERT ON messages", "id = NEW.session_id"),
    "stirred_by_agent": (
        "AFTER INSERT ON session_members WHEN NEW.role = 'agent'",
        "id = NEW.session_id",
    ),
    "stirred_by_claim": ("AFTER INSERT ON formations", "id = NEW.session_id"),
    "stirred_by_status": (
        "AFTER UPDATE OF status ON formations WHEN NEW.status <> OLD.status",
        "id = NEW.session_id",
    ),
    "stirred_by_new_agent": ("AFTER INSERT ON agents", _WITH_AGENT),
    "stirred_by_change_of_agent": ("AFTER UPDATE OF deleted ON agents", _WITH_AGENT),
    "stirred_by_removal": ("AFTER DELETE ON formations", "id = OLD.session_id"),
}

_INDEX = """
    CREATE INDEX IF NOT EXISTS sessions_quiet
    ON sessions (settled, quiet_since, id)
"""


def _columns(connection: Any) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_xinfo(sessions)")}


def up_sqlite(connection: Any) -> None:
    for name, statement in _COLUMNS.items():
        if name not in _columns(connection):
            connection.execute(statement)
    connection.execute(_INDEX)
    for name, (event, sessions) in _TRIGGERS.items():
        connection.execute(
            f"CREATE TRIGGER IF NOT EXISTS {name} {event} BEGIN"
            " UPDATE sessions SET stirred = stirred + 1, settled = NULL"
            f" WHERE {sessions}; END"
        )


def down_sqlite(connection: Any) -> None:
    for name in _TRIGGERS:
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    connection.execute("DROP INDEX IF EXISTS sessions_quiet")
    for name in reversed(_COLUMNS):
        if name in _columns(connection):
            connection.execute(f"ALTER TABLE sessions DROP COLUMN {name}")


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""


def down_mongo(database: Any) -> None:
    database.drop_collection("memory2_cold")
