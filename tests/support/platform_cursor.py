"""Read and write the platform's cursor of a session, as the platform does, on any store."""

from __future__ import annotations

from typing import Any

from bson import ObjectId

from edenmem.models.backup import RecordKind
from edenmem.models.ids import is_id
from edenmem.store.sqlite import SqliteStore

_FIELD = "last_memory_message_id"


def put_cursor(store: Any, session_id: str, cursor: str | None) -> None:
    """Set the cursor of a session, forwards or backwards."""
    if isinstance(store, SqliteStore):
        with store.connections.writing() as connection:
            connection.execute(
                f"UPDATE sessions SET {_FIELD} = ? WHERE id = ?",
                (cursor, session_id),
            )
        return
    value = ObjectId(cursor) if cursor is not None and is_id(cursor) else cursor
    store.connection.sessions.update_one(
        {"_id": ObjectId(session_id)}, {"$set": {f"memory_context.{_FIELD}": value}}
    )


def cursor_of(store: Any, session_id: str) -> str | None:
    """Return the cursor of a session."""
    sessions = store.walk.documents([RecordKind.SESSION])
    found: str | None = {one.id: one.record.last_memory_message_id for one in sessions}[session_id]
    return found
