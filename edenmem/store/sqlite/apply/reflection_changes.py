"""Changes to reflections, and thereby to buffers."""

from __future__ import annotations

import sqlite3

import msgspec

from edenmem.models.changes import (
    AddReflection,
    ChangeResult,
    ChangeStatus,
    RemoveReflection,
    RestoreReflection,
    ReviseReflection,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.sqlite.apply.judging import Judging, absent, result, stale
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import plain, to_list, to_ms


def insert_reflection(connection: sqlite3.Connection, new: Reflection, scope_id: int) -> None:
    """Store a reflection whose id is free."""
    connection.execute(
        "INSERT INTO reflections (id, scope_id, content, formed_at, session_id,"
        " source_message_ids, version, updated_at, absorbed, absorbed_at, consolidated_into,"
        " private, formation_id, propagated_from)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.id,
            scope_id,
            new.content,
            to_ms(new.formed_at),
            new.session_id,
            to_list(new.source_message_ids),
            new.version,
            to_ms(new.updated_at),
            new.absorbed,
            to_ms(new.absorbed_at),
            new.consolidated_into,
            new.private,
            new.formation_id,
            to_list(new.propagated_from),
        ),
    )


class ReflectionChanges(Judging):
    """Adds, revises, removes and restores reflections."""

    def _add_reflection(self, change: AddReflection) -> ChangeResult:
        return self._insert_reflection(change)

    def _restore_reflection(self, change: RestoreReflection) -> ChangeResult:
        return self._insert_reflection(change)

    def _insert_reflection(self, change: AddReflection | RestoreReflection) -> ChangeResult:
        new = change.reflection
        scope = new.home
        known = self._db.execute(f"{codec.REFLECTION} WHERE r.id = ?", (new.id,)).fetchone()
        if known is not None:
            same = codec.reflection_from(known)
            if same.home == scope and same.content == new.content:
                return result(change, ChangeStatus.DUPLICATE, new.id, "it is there already")
            return result(change, ChangeStatus.CONFLICT, new.id, "another reflection has this id")
        scope_id = scopes.make_number(self._db, scope)
        insert_reflection(self._db, new, scope_id)
        if not new.absorbed:
            self._db.execute(
                "INSERT OR IGNORE INTO consolidations (scope_id, id, content, words, version,"
                " word_limit, updated_at) VALUES (?, ?, '', 0, 0, ?, ?)",
                (scope_id, new_id(), change.word_limit, self._now),
            )
        pending = 0 if new.absorbed else 1
        scopes.touch(self._db, scope_id, self._now, reflections=1, pending=pending)
        self._audit(change, "reflection", new.id, scope, None, plain(new))
        return result(change, ChangeStatus.APPLIED, new.id)

    def _revise_reflection(self, change: ReviseReflection) -> ChangeResult:
        old = self._reflection(change.scope, change.reflection_id)
        if old is None:
            return absent(change, change.reflection_id)
        if old.absorbed:
            return result(
                change, ChangeStatus.CONFLICT, old.id, "it has been consolidated meanwhile"
            )
        if old.version != change.expected_version:
            return stale(change, old.id, old.version, change.expected_version)
        new = msgspec.structs.replace(
            old, content=change.content, version=old.version + 1, updated_at=change.at
        )
        self._db.execute(
            "UPDATE reflections SET content = ?, version = ?, updated_at = ? WHERE id = ?",
            (new.content, new.version, to_ms(new.updated_at), new.id),
        )
        self._touch(change.scope)
        self._audit(change, "reflection", new.id, change.scope, plain(old), plain(new))
        return result(change, ChangeStatus.APPLIED, new.id)

    def _remove_reflection(self, change: RemoveReflection) -> ChangeResult:
        old = self._reflection(change.scope, change.reflection_id)
        if old is None:
            return absent(change, change.reflection_id)
        if old.version != change.expected_version:
            return stale(change, old.id, old.version, change.expected_version)
        self._db.execute("DELETE FROM reflections WHERE id = ?", (old.id,))
        self._touch(change.scope, reflections=-1, pending=0 if old.absorbed else -1)
        self._audit(change, "reflection", old.id, change.scope, plain(old), None)
        return result(change, ChangeStatus.APPLIED, old.id)

    def _reflection(self, scope: Scope, reflection_id: str) -> Reflection | None:
        row = self._db.execute(f"{codec.REFLECTION} WHERE r.id = ?", (reflection_id,)).fetchone()
        found = codec.reflection_from(row) if row else None
        return found if found is not None and found.home == scope else None
