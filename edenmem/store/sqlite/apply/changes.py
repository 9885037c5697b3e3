"""Changes to memory, planned by `edenmem.memory` and written in one transaction.

Under ``BEGIN IMMEDIATE`` there are no other writers between reading and writing. An error (an
invalid vector, a full disk) rolls back the whole set.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from edenmem.memory import Effect, Needs, State, Write, batches, needs, plan_all
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, FailedDrafts, Held, Policy, Reflection
from edenmem.models.records import AuditEntry, HistoryEntry
from edenmem.models.scope import Scope
from edenmem.store.sqlite.apply.state import StateLoader, count_scope, load_state
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.host.rows import insert_agent, insert_user
from edenmem.store.sqlite.memory import documents, facts, log
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

    def settle_propagation(self, scope: Scope, version: int) -> None:
        with self._db.writing() as connection:
            number = scopes.number_of(connection, scope)
            row = connection.execute(
                "SELECT unpropagated FROM consolidations WHERE scope_id = ?", (number,)
            ).fetchone()
            stored = msgspec.json.decode(row[0], type=list[int]) if row and row[0] else []
            left = [one for one in stored if one != version]
            connection.execute(
                "UPDATE consolidations SET unpropagated = ? WHERE scope_id = ?",
                (json_array(left) if left else None, number),
            )


def apply_changes(connection: sqlite3.Connection, changes: ChangeSet) -> list[ChangeResult]:
    """Apply a set in the caller's transaction."""
    at = to_ms(changes.at)
    writer = EffectWriter(connection, at)
    results: list[ChangeResult] = []
    for batch in batches(changes.changes):
        loader = StateLoader(connection, needs(batch, automatic=changes.automatic))
        effects = plan_all(changes, loader.state(at), batch, start=len(results))
        writer.write(effects, loader.numbers)
        results += [effect.result for effect in effects]
    return results


class EffectWriter:
    """Writes effects in order; shared rows are written once per batch."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._db = connection
        self._at = at
        self._numbers: dict[Scope, int] = {}
        self._touched: dict[Scope, tuple[int, int, int, int]] = {}
        self._versions: list[tuple[HistoryEntry, int]] = []
        self._entries: list[tuple[AuditEntry, int | None]] = []

    def write(self, effects: Iterable[Effect], numbers: Mapping[Scope, int]) -> None:
        """Write all effects; ``numbers`` are the known scope numbers."""
        self._numbers.update(numbers)
        for effect in effects:
            for write in effect.writes:
                self._write(write)
            self._versions += [(each, self._number(each.scope)) for each in effect.versions]
            if (entry := effect.entry) is not None:
                scope_id = None if entry.scope is None else self._number(entry.scope)
                self._entries.append((entry, scope_id))
            for touch in effect.touches:
                revision, *counts = self._touched.get(touch.scope, (0, 0, 0, 0))
                more = (touch.facts, touch.reflections, touch.pending)
                grown = (now + by for now, by in zip(counts, more, strict=True))
                self._touched[touch.scope] = (revision + 1, *grown)  # type: ignore[assignment]
            if effect.repairs is not None:
                self._touch()
                number = self._number(effect.repairs)
                self._db.execute(
                    "UPDATE scopes SET facts = ?, reflections = ?, pending = ? WHERE scope_id = ?",
                    (*count_scope(self._db, number), number),
                )
        log.add_versions(self._db, self._versions)
        log.add_entries(self._db, self._entries)
        self._touch()
        self._versions, self._entries = [], []

    def _number(self, scope: Scope) -> int:
        number = self._numbers.get(scope)
        if number is None:
            number = self._numbers[scope] = scopes.make_number(self._db, scope)
        return number

    def _touch(self) -> None:
        for scope, (revision, in_facts, in_reflections, pending) in self._touched.items():
            scopes.touch(
                self._db,
                self._number(scope),
                self._at,
                revision=revision,
                facts=in_facts,
                reflections=in_reflections,
                pending=pending,
            )
        self._touched = {}

    # -- documents ---------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        match write.model:
            case Fact() as fact:
                self._write_fact(fact, write)
            case Reflection() as reflection:
                self._write_reflection(reflection, write)
            case Held() as held:
                if write.new is None:
                    self._delete("held", held.id)
                else:
                    documents.insert_held(self._db, held, self._number(held.home))
            case Consolidation() as text:
                documents.put_text(self._db, text, self._number(text.home))
            case Policy() as policy:
                if write.new is None:
                    self._delete("policies", policy.id)
                else:
                    documents.put_policy(self._db, policy, self._number(policy.home))
            case Agent() | User():
                self._write_account(write)

    def _write_fact(self, fact: Fact, write: Write) -> None:
        old = write.old
        if not isinstance(old, Fact):
            facts.insert_fact(self._db, fact, self._number(fact.home))
        elif write.new is None:
            facts.delete_fact(self._db, facts.locate_fact(self._db, old))
        elif fact.hash == old.hash and fact.embedding is old.embedding:
            facts.update_fact(self._db, old, fact)
        else:
            facts.rewrite_fact(self._db, facts.locate_fact(self._db, old), fact)

    def _write_reflection(self, reflection: Reflection, write: Write) -> None:
        if write.old is None:
            documents.insert_reflection(self._db, reflection, self._number(reflection.home))
        elif write.new is None:
            self._delete("reflections", reflection.id)
        else:
            documents.update_reflection(self._db, reflection)

    def _write_account(self, write: Write) -> None:
        match write.old, write.new:
            case None, Agent() as agent:
                insert_agent(self._db, agent)
            case None, User() as user:
                insert_user(self._db, user)
            case _, Agent() as agent:
                self._db.execute(
                    "UPDATE agents SET user_memory_enabled = ?, agent_memory_enabled = ?"
                    " WHERE id = ?",
                    (agent.user_memory_enabled, agent.agent_memory_enabled, agent.id),
                )
            case _, None:
                self._delete(f"{write.kind}s", write.model.id)

    def _delete(self, table: str, id: str) -> None:
        self._db.execute(f"DELETE FROM {table} WHERE id = ?", (id,))
