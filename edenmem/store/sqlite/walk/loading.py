"""Loading of backup records, with all derived data."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from edenmem.errors import InputError
from edenmem.models.backup import (
    LoadResult,
    LoadStatus,
    Record,
    RecordKind,
    StoredAgent,
    StoredSession,
    StoredUser,
    StoredVersion,
    compare_records,
    forgotten_ids,
)
from edenmem.models.changes import AuditEntry
from edenmem.models.formation import Formation, UsageEntry
from edenmem.models.host import Message
from edenmem.models.ids import new_id
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import select_more, to_list, to_ms
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.core.source_words import index_late_messages, refresh_words
from edenmem.store.sqlite.formations.formations import find_formation, insert_formation
from edenmem.store.sqlite.host.rows import (
    AGENT,
    MESSAGE,
    SESSION,
    STORED_USER,
    agent_from,
    insert_agent,
    insert_session,
    insert_user,
    message_from,
    message_row,
    session_from,
    stored_user_from,
)
from edenmem.store.sqlite.memory import facts, log, vectors
from edenmem.store.sqlite.memory.documents import insert_held, insert_reflection, put_policy
from edenmem.store.sqlite.memory.history import (
    HISTORY,
    history_from,
    only_version,
    place_versions,
)
from edenmem.store.sqlite.memory.log import AUDIT, audit_from
from edenmem.store.sqlite.memory.memory import policy_of

_ADDED = LoadResult(status=LoadStatus.ADDED)
_SAME = LoadResult(status=LoadStatus.SAME)


def _refuse(detail: str) -> LoadResult:
    return LoadResult(status=LoadStatus.REFUSED, detail=detail)


class Loader:
    """Stores the records of one batch in one transaction."""

    def __init__(self, connection: sqlite3.Connection, *, dry_run: bool) -> None:
        self._db = connection
        self._dry_run = dry_run

    def load(self, kind: RecordKind, records: Sequence[Record]) -> list[LoadResult]:
        """Store records of a kind; return one result for each, in order."""
        put = _PUT[kind]
        results = [put(self, record) for record in records]
        if kind is RecordKind.MESSAGE and not self._dry_run:
            self._mark_forgotten(records, results)
            added = zip(records, results, strict=True)
            late = [record.id for record, result in added if result.status is LoadStatus.ADDED]
            index_late_messages(self._db, late)
        return results

    def _mark_forgotten(self, records: Sequence[Record], results: Sequence[LoadResult]) -> None:
        ids = forgotten_ids(records, results)
        self._db.execute(
            "INSERT OR IGNORE INTO forgotten_messages SELECT value FROM json_each(?)",
            (json_array(ids),),
        )
        refresh_words(self._db, ids)

    # -- what the platform owns --------------------------------------------------------------

    def put_agent(self, agent: StoredAgent) -> LoadResult:
        row = self._by_id(select_more(AGENT, "deleted"), "id", agent.id)
        if row is not None:
            stored = StoredAgent(**msgspec.structs.asdict(agent_from(row)), deleted=bool(row[-1]))
            return compare_records(RecordKind.AGENT, stored, agent)
        if self._is_taken("agents", agent.username):
            return _refuse(f"username is taken by another agent: {agent.username!r}")
        if not self._dry_run:
            insert_agent(self._db, agent)
            self._mark_deleted("agents", agent.id, agent.deleted)
        return _ADDED

    def put_user(self, user: StoredUser) -> LoadResult:
        row = self._by_id(STORED_USER, "id", user.id)
        if row is not None:
            stored = stored_user_from(row)
            return compare_records(RecordKind.USER, stored, user)
        if self._is_taken("users", user.username):
            return _refuse(f"username is taken by another user: {user.username!r}")
        if not self._dry_run:
            insert_user(self._db, user)
            self._mark_deleted("users", user.id, user.deleted)
        return _ADDED

    def _is_taken(self, table: str, username: str) -> bool:
        found = self._db.execute(f"SELECT 1 FROM {table} WHERE username = ?", (username,))
        return found.fetchone() is not None

    def _mark_deleted(self, table: str, id: str, deleted: bool) -> None:
        if deleted:
            self._db.execute(f"UPDATE {table} SET deleted = 1 WHERE id = ?", (id,))

    def put_session(self, session: StoredSession) -> LoadResult:
        row = self._by_id(SESSION, "s.id", session.id)
        if row is not None:
            stored = StoredSession(**msgspec.structs.asdict(session_from(self._db, row)))
            return compare_records(RecordKind.SESSION, stored, session)
        if not self._dry_run:
            insert_session(self._db, session)
            self._db.execute(
                "UPDATE sessions SET last_memory_message_id = ? WHERE id = ?",
                (session.last_memory_message_id, session.id),
            )
        return _ADDED

    def put_message(self, message: Message) -> LoadResult:
        row = self._by_id(MESSAGE, "m.id", message.id)
        if row is not None:
            return compare_records(RecordKind.MESSAGE, message_from(row), message)
        if not self._dry_run:
            known = self._db.execute("SELECT 1 FROM sessions WHERE id = ?", (message.session_id,))
            if known.fetchone() is None:
                return _refuse(f"session does not exist: {message.session_id}")
            self._db.execute(
                "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                message_row(message.session_id, message),
            )
        return _ADDED

    # -- memory ------------------------------------------------------------------------------

    def put_policy(self, policy: Policy) -> LoadResult:
        number = scopes.number_of(self._db, policy.home)
        stored = None if number is None else policy_of(self._db, number)
        if stored is not None:
            return compare_records(RecordKind.POLICY, stored, policy)
        if self._is_elsewhere("policies", policy.id):
            return _refuse("another policy has this ID")
        if not self._dry_run:
            scope_id = scopes.make_number(self._db, policy.home)
            put_policy(self._db, policy, scope_id)
            scopes.touch(self._db, scope_id, to_ms(policy.updated_at) or 0)
        return _ADDED

    def put_consolidation(self, text: Consolidation) -> LoadResult:
        from edenmem.text import word_count

        number = scopes.number_of(self._db, text.home)
        row = None if number is None else self._by_id(codec.CONSOLIDATION, "c.scope_id", number)
        stored = None if row is None else codec.consolidation_from(row, ())
        if stored is not None and (stored.version or not text.version):
            return compare_records(RecordKind.CONSOLIDATION, stored, text)
        if self._is_elsewhere("consolidations", text.id) and (
            stored is None or stored.id != text.id
        ):
            return _refuse("another text has this ID")
        if not self._dry_run:
            # The document of a buffer without a text is replaced by that of the text.
            self._db.execute("DELETE FROM consolidations WHERE scope_id = ?", (number,))
            scope_id = scopes.make_number(self._db, text.home)
            self._db.execute(
                "INSERT INTO consolidations (scope_id, id, content, words, version, word_limit,"
                " absorbed_ids, last_consolidated_at, updated_at, unpropagated, fixed)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    scope_id,
                    text.id,
                    text.consolidated_content,
                    word_count(text.consolidated_content),
                    text.version,
                    text.word_limit,
                    to_list(text.absorbed_ids),
                    to_ms(text.last_consolidated_at),
                    to_ms(text.updated_at),
                    json_array(text.unpropagated_versions) if text.unpropagated_versions else None,
                    codec.fixed_column(text),
                ),
            )
            scopes.touch(self._db, scope_id, to_ms(text.updated_at) or 0)
        return _ADDED

    def put_reflection(self, reflection: Reflection) -> LoadResult:
        row = self._by_id(codec.REFLECTION, "r.id", reflection.id)
        if row is not None:
            return compare_records(RecordKind.REFLECTION, codec.reflection_from(row), reflection)
        if not self._dry_run:
            scope_id = scopes.make_number(self._db, reflection.home)
            insert_reflection(self._db, reflection, scope_id)
            if not reflection.absorbed:  # every buffer has a document
                self._db.execute(
                    "INSERT OR IGNORE INTO consolidations (scope_id, id, content, words, version,"
                    " word_limit) VALUES (?, ?, '', 0, 0, 0)",
                    (scope_id, new_id()),
                )
            pending = 0 if reflection.absorbed else 1
            at = to_ms(reflection.updated_at or reflection.formed_at)
            scopes.touch(self._db, scope_id, at, reflections=1, pending=pending)
        return _ADDED

    def put_fact(self, fact: Fact) -> LoadResult:
        row = self._by_id(codec.FACT, "f.id", fact.id)
        if row is not None:
            return compare_records(RecordKind.FACT, codec.fact_from(row), fact)
        scope = fact.home
        number = scopes.number_of(self._db, scope)
        if number is not None:
            twin = facts.fact_with_hash(self._db, number, fact.hash)
            if twin is not None:
                return LoadResult(
                    status=LoadStatus.SAME, detail=f"the scope has the same fact as {twin}"
                )
        try:
            if not self._dry_run:
                scope_id = number or scopes.make_number(self._db, scope)
                facts.insert_fact(self._db, fact, scope_id)
                scopes.touch(self._db, scope_id, to_ms(fact.changed_at), facts=1)
            elif fact.embedding is not None:
                vectors.check_vector(fact.embedding)
        except InputError as error:  # invalid vector; nothing of the fact is written yet
            return _refuse(error.message)
        return _ADDED

    def put_held(self, held: Held) -> LoadResult:
        row = self._by_id(codec.HELD, "e.id", held.id)
        if row is not None:
            return compare_records(RecordKind.HELD, codec.held_from(row), held)
        if not self._dry_run:
            insert_held(self._db, held, scopes.make_number(self._db, held.home))
        return _ADDED

    def _is_elsewhere(self, table: str, id: str) -> bool:
        found = self._db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (id,))
        return found.fetchone() is not None

    # -- what happened -----------------------------------------------------------------------

    def put_formation(self, formation: Formation) -> LoadResult:
        stored = find_formation(self._db, formation.id)
        if stored is not None:
            return compare_records(RecordKind.FORMATION, stored, formation)
        if not self._dry_run and not insert_formation(self._db, formation):
            return _refuse("another formation has its number in the session, or its messages")
        return _ADDED

    def put_usage(self, entry: UsageEntry) -> LoadResult:
        found = self._db.execute("SELECT 1 FROM usage_entries WHERE id = ?", (entry.id,))
        if found.fetchone() is not None:
            return _SAME
        if not self._dry_run:
            self._db.execute(
                "INSERT INTO usage_entries (id, at, agent_id, work, calls) VALUES (?, ?, ?, ?, ?)",
                (
                    entry.id,
                    to_ms(entry.at),
                    entry.agent_id,
                    entry.work,
                    msgspec.json.encode(entry.calls).decode(),
                ),
            )
        return _ADDED

    def put_audit(self, entry: AuditEntry) -> LoadResult:
        row = self._by_id(AUDIT, "a.id", entry.id)
        if row is not None:
            return compare_records(RecordKind.AUDIT, audit_from(row), entry)
        if not self._dry_run:
            scope_id = None if entry.scope is None else scopes.make_number(self._db, entry.scope)
            log.add_entries(self._db, [(entry, scope_id)])
        return _ADDED

    def put_history(self, version: StoredVersion) -> LoadResult:
        if self._is_of_another(version):
            return LoadResult(status=LoadStatus.KEPT, detail="its target differs here")
        stored = self._versions(version)
        for known in stored:
            if known.place == version.place:
                return compare_records(RecordKind.HISTORY, known, version)
        if stored and stored[-1].place > version.place:
            return LoadResult(status=LoadStatus.KEPT, detail="its target has another history here")
        if not self._dry_run:
            scope_id = scopes.make_number(self._db, version.scope)
            log.add_versions(self._db, [(version, scope_id)])
        return _ADDED

    def _is_of_another(self, version: StoredVersion) -> bool:
        """Return whether the stored target cannot have had this version."""
        table = {"fact": "facts", "consolidation": "consolidations"}.get(version.target_type)
        if table is None:
            return True
        row = self._db.execute(
            f"SELECT version, content FROM {table} WHERE id = ?", (version.target_id,)
        ).fetchone()
        if row is None or version.version < row[0]:
            return False
        return bool(version.version > row[0] or version.content != row[1])

    def _versions(self, version: StoredVersion) -> list[StoredVersion]:
        """Return all known versions of the target, including the current one."""
        rows = self._db.execute(
            f"{HISTORY} WHERE h.target_id = ? AND h.target_type = ? ORDER BY h.history_no",
            (version.target_id, version.target_type),
        ).fetchall()
        if rows or version.target_type != "fact":
            return list(place_versions(map(history_from, rows)))
        row = self._by_id(codec.FACT, "f.id", version.target_id)
        if row is None:
            return []
        (only,) = place_versions([only_version(self._db, codec.fact_from(row))])
        return [only] if only == msgspec.structs.replace(version, id=only.id) else []

    def _by_id(self, select: str, column: str, value: str | int) -> codec.Row | None:
        row: codec.Row | None = self._db.execute(
            f"{select} WHERE {column} = ?", (value,)
        ).fetchone()
        return row


_PUT: dict[RecordKind, Callable[[Loader, Any], LoadResult]] = {
    RecordKind.AGENT: Loader.put_agent,
    RecordKind.USER: Loader.put_user,
    RecordKind.SESSION: Loader.put_session,
    RecordKind.MESSAGE: Loader.put_message,
    RecordKind.POLICY: Loader.put_policy,
    RecordKind.CONSOLIDATION: Loader.put_consolidation,
    RecordKind.REFLECTION: Loader.put_reflection,
    RecordKind.FACT: Loader.put_fact,
    RecordKind.HELD: Loader.put_held,
    RecordKind.FORMATION: Loader.put_formation,
    RecordKind.USAGE: Loader.put_usage,
    RecordKind.AUDIT: Loader.put_audit,
    RecordKind.HISTORY: Loader.put_history,
}
