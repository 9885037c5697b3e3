"""Changes to memory, planned by `edenmem.memory` and written in one transaction.

Under ``BEGIN IMMEDIATE`` there are no other writers between reading and writing. An error (an
invalid vector, a full disk) rolls back the whole set.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import msgspec

from edenmem.memory import Needs, State, batches, needs, plan_all
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.memory import FailedDrafts
from edenmem.models.scope import Scope
from edenmem.store.sqlite.apply.effects import EffectWriter
from edenmem.store.sqlite.apply.state import StateLoader, load_state
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.memory.memory import consolidation_of


class Changes(Part):
    """See `edenmem.store.protocol.memory.Changes`."""

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        if not changes.changes:
            return []
        with self._db.writing() as connection:
            return apply_changes(connection, changes)

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        with self._db.reading() as connection:
            return load_state(connection, needs, at)

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        if not fact_ids:
            return
        with self._db.writing(durable=False) as connection:
            connection.execute(
                "UPDATE facts SET access_count = access_count + 1,"
                " last_accessed_at = max(coalesce(last_accessed_at, ?1), ?1)"
                " WHERE id IN (SELECT value FROM json_each(?2))",
                (to_ms(at), json_array(fact_ids)),
            )

    def set_failed_drafts(self, scope: Scope, failed: FailedDrafts) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "UPDATE consolidations SET failed_drafts = ? WHERE scope_id = ?",
                (msgspec.json.encode(failed).decode(), scopes.number_of(connection, scope)),
            )

    def finish_absorbing(self, scope: Scope) -> int:
        with self._db.writing() as connection:
            number = scopes.number_of(connection, scope)
            text = None if number is None else consolidation_of(connection, number)
            if number is None or text is None:
                return 0
            at = to_ms(text.last_consolidated_at or text.updated_at)
            marked = connection.execute(
                "UPDATE reflections SET absorbed = 1, absorbed_at = ?, consolidated_into = ?"
                " WHERE scope_id = ? AND absorbed = 0 AND id IN (SELECT value FROM json_each(?))",
                (at, text.id, number, json_array(text.absorbed_ids)),
            ).rowcount
            if marked:
                scopes.touch(connection, number, at or 0, pending=-marked)
        return marked


def apply_changes(connection: sqlite3.Connection, changes: ChangeSet) -> list[ChangeResult]:
    """Apply a set in the caller's transaction."""
    at = to_ms(changes.at)
    writer = EffectWriter(connection, at)
    results = []
    for batch in batches(changes.changes):
        loader = StateLoader(connection, needs(batch, automatic=changes.automatic))
        effects = plan_all(changes, loader.state(at), batch)
        writer.write(effects, loader.numbers)
        results += [effect.result for effect in effects]
    return results
