"""Sessions in which the cold run found nothing to do, so that it need not look at them again.

SQLite: ``sessions.settled`` names the rules by which a session was found to have nothing to do;
whatever may give it something to do again takes the note back, in the same transaction, by the
triggers below. ``stirred`` counts these occasions, so that a note is refused that was made of a
look from before one. MongoDB: a collection of its own, whose index is declared as data.
"""

# ruff: noqa: S608 - what is put into statements here are our own constants.

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

#: Trigger → the event, and which sessions are stirred by it.
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
    """Nothing: see the module."""


def down_mongo(database: Any) -> None:
    database.drop_collection("memory2_cold")
