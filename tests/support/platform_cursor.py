"""Read and write the platform's progress of a session, as the platform does, on any store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bson import ObjectId

from edenmem.models.backup import RecordKind
from edenmem.models.changes import AddReflection
from edenmem.models.ids import is_id, new_id
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import NOW, change_set

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


def put_proof(store: Any, session_id: str, agent_id: str, message_ids: Sequence[str]) -> None:
    """Store a reflection on these messages that edenmem did not form."""
    reflection = Reflection(
        id=new_id(),
        **Scope.session(agent_id, session_id).fields(session_id=session_id),
        content=f"The platform read {len(message_ids)} messages ({new_id()}).",
        formed_at=NOW,
        source_message_ids=tuple(message_ids),
    )
    store.changes.apply(change_set(AddReflection(reflection=reflection, word_limit=200)))
