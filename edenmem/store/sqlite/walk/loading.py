"""Loading of backup records, with all derived data."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
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
from edenmem.models.formation import UsageEntry
from edenmem.models.ids import new_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.common.loading import ADDED, BY_SCOPE, load_records, record_key
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Table, as_json, to_ms
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.core.source_words import index_late_messages, refresh_words
from edenmem.store.sqlite.formations.formations import insert_formation
from edenmem.store.sqlite.host.rows import (
    INSERT_MESSAGE,
    MESSAGES,
    insert_agent,
    insert_session,
    insert_user,
)
from edenmem.store.sqlite.memory import facts, log, vectors
from edenmem.store.sqlite.memory.documents import (
    insert_held,
    insert_reflection,
    put_policy,
    put_text,
)
from edenmem.store.sqlite.memory.history import (
    HISTORY,
    history_from,
    only_version,
    place_versions,
)
from edenmem.store.sqlite.walk.sources import SOURCES

_USAGE = Table(
    UsageEntry,
    "usage_entries",
    "u",
    "id agent_id work",
    times="at",
    others={
        "calls": as_json(Any, None),
    },
)
_INSERT_USAGE = _USAGE.insert()


class Loader:
    """Stores the records of one batch in one transaction."""

    def __init__(self, connection: sqlite3.Connection, *, dry_run: bool) -> None:
        self._db = connection
        self._dry_run = dry_run
        #: Functions that insert a record; False if another has its unique value.
        self._puts: dict[RecordKind, Callable[[Any], object]] = {
            RecordKind.AGENT: lambda agent: self._put_account("agents", insert_agent, agent),
            RecordKind.USER: lambda user: self._put_account("users", insert_user, user),
            RecordKind.SESSION: self._put_session,
            RecordKind.MESSAGE: lambda one: self._put(INSERT_MESSAGE, MESSAGES.values(one)),
            RecordKind.POLICY: self._put_policy,
            RecordKind.CONSOLIDATION: self._put_text,
            RecordKind.REFLECTION: self._put_reflection,
            RecordKind.FACT: self._put_fact,
            RecordKind.HELD: lambda one: insert_held(self._db, one, self._number_of(one.home)),
            RecordKind.FORMATION: lambda one: insert_formation(self._db, one),
            RecordKind.USAGE: lambda one: self._put(_INSERT_USAGE, _USAGE.values(one)),
            RecordKind.AUDIT: self._put_entry,
        }

    def load(self, kind: RecordKind, records: Sequence[Record]) -> list[LoadResult]:
        """Store records of a kind; return one result for each, in order."""
        if kind is RecordKind.HISTORY:
            return [self._put_version(record) for record in records]  # type: ignore[arg-type]
        return load_records(self, kind, records, dry_run=self._dry_run)

    def _number_of(self, scope: Scope) -> int:
        return scopes.make_number(self._db, scope)

    # -- rows --------------------------------------------------------------------------------

    def complete(self, kind: RecordKind, added: Sequence[Any], there: Sequence[Any]) -> None:
        if kind is not RecordKind.MESSAGE:
            return
        marked = forgotten_ids(there)
        self._db.execute(
            "INSERT OR IGNORE INTO forgotten_messages SELECT value FROM json_each(?)",
            (json_array(marked),),
        )
        refresh_words(self._db, marked)
        index_late_messages(self._db, [record.id for record in added])

    def stored(self, kind: RecordKind, records: Sequence[Any]) -> dict[Any, Record | None]:
        source, column = SOURCES[kind], SOURCES[kind].order[-1]
        keys: dict[Any, Any] = {record.id: record_key(kind, record) for record in records}
        if kind in BY_SCOPE:
            column = f"{source.table.split()[1]}.scope_id"
            numbers = scopes.numbers_of(self._db, [record.home for record in records])
            keys = {number: scope for scope, number in numbers.items()}
        rows = f" FROM {source.table}"
        select = source.select.replace(rows, f", {column}{rows}", 1)
        found: dict[Any, Record | None] = {}
        for row in self._db.execute(f"{select} WHERE {column} {AMONG}", (json_array(keys),)):
            try:
                found[keys[row[-1]]] = source.decode(self._db, row)
            except codec.UNREADABLE:
                found[keys[row[-1]]] = None
        return found

    def sessions(self, ids: Sequence[str]) -> set[str]:
        select = f"SELECT id FROM sessions WHERE id {AMONG}"
        return {id for (id,) in self._db.execute(select, (json_array(ids),))}

    def taken_names(self, kind: RecordKind, names: Sequence[str]) -> set[str]:
        select = f"SELECT username FROM {kind}s WHERE username {AMONG}"
        return {name for (name,) in self._db.execute(select, (json_array(names),))}

    def twins(self, facts_: Sequence[Fact]) -> dict[tuple[Scope, str], str]:
        found = {}
        numbers = scopes.numbers_of(self._db, [fact.home for fact in facts_])
        for fact in facts_:
            if fact.home in numbers:
                twin = facts.fact_with_hash(self._db, numbers[fact.home], fact.hash)
                if twin is not None:
                    found[fact.home, fact.hash] = twin
        return found

    def taken_keys(self, facts_: Sequence[Fact]) -> set[tuple[Scope, str | None]]:
        numbers = scopes.numbers_of(self._db, [fact.home for fact in facts_])
        return {
            (fact.home, fact.key)
            for fact in facts_
            if facts.fact_with_key(self._db, numbers.get(fact.home), fact.key) is not None
        }

    def obstacles(self, kind: RecordKind, records: Sequence[Any]) -> dict[int, str]:
        found = {}
        for place, record in enumerate(records):
            if kind in BY_SCOPE and (reason := self._elsewhere(kind, record)):
                found[place] = reason
            elif kind is RecordKind.FACT and record.embedding is not None:
                try:
                    vectors.check_vector(record.embedding)
                except InputError as error:
                    found[place] = error.message
        return found

    def _elsewhere(self, kind: RecordKind, record: Policy | Consolidation) -> str:
        """Return the reason if another scope has the ID of a policy or text."""
        table = SOURCES[kind].table.split()[0]
        number = scopes.number_of(self._db, record.home)
        found = self._db.execute(
            f"SELECT 1 FROM {table} WHERE id = ? AND scope_id IS NOT ?", (record.id, number)
        ).fetchone()
        noun = "policy" if kind is RecordKind.POLICY else "text"
        return f"another {noun} has this ID" if found else ""

    def insert(
        self, kind: RecordKind, records: Sequence[Any], stored: Mapping[Any, Record | None]
    ) -> dict[int, str]:
        put = self._puts[kind]
        return {place: "" for place, record in enumerate(records) if put(record) is False}

    def _put(self, statement: str, values: Sequence[Any]) -> bool:
        return self._db.execute(statement, values).rowcount > 0

    def _put_account(
        self,
        table: str,
        insert: Callable[[sqlite3.Connection, Any], object],
        account: StoredAgent | StoredUser,
    ) -> None:
        insert(self._db, account)
        if account.deleted:
            self._db.execute(f"UPDATE {table} SET deleted = 1 WHERE id = ?", (account.id,))

    def _put_session(self, session: StoredSession) -> None:
        insert_session(self._db, session)
        self._db.execute(
            "UPDATE sessions SET last_memory_message_id = ? WHERE id = ?",
            (session.last_memory_message_id, session.id),
        )

    # -- memory ------------------------------------------------------------------------------

    def _put_policy(self, policy: Policy) -> None:
        scope_id = self._number_of(policy.home)
        put_policy(self._db, policy, scope_id)
        scopes.touch(self._db, scope_id, to_ms(policy.updated_at) or 0)

    def _put_text(self, text: Consolidation) -> None:
        scope_id = self._number_of(text.home)
        # The document of a buffer without a text is replaced by that of the text.
        self._db.execute("DELETE FROM consolidations WHERE scope_id = ?", (scope_id,))
        put_text(self._db, text, scope_id)
        scopes.touch(self._db, scope_id, to_ms(text.updated_at) or 0)

    def _put_reflection(self, reflection: Reflection) -> None:
        scope_id = self._number_of(reflection.home)
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

    def _put_fact(self, fact: Fact) -> None:
        scope_id = self._number_of(fact.home)
        facts.insert_fact(self._db, fact, scope_id)
        scopes.touch(self._db, scope_id, to_ms(fact.changed_at), facts=1)

    def _put_entry(self, entry: AuditEntry) -> None:
        scope_id = None if entry.scope is None else self._number_of(entry.scope)
        log.add_entries(self._db, [(entry, scope_id)])

    def _put_version(self, version: StoredVersion) -> LoadResult:
        if self._is_of_another(version):
            return LoadResult(status=LoadStatus.KEPT, detail="its target differs here")
        stored = self._versions(version)
        for known in stored:
            if known.place == version.place:
                return compare_records(RecordKind.HISTORY, known, version)
        if stored and stored[-1].place > version.place:
            return LoadResult(status=LoadStatus.KEPT, detail="its target has another history here")
        if not self._dry_run:
            scope_id = self._number_of(version.scope)
            log.add_versions(self._db, [(version, scope_id)])
        return ADDED

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
        row = self._db.execute(f"{codec.FACT} WHERE f.id = ?", (version.target_id,)).fetchone()
        if row is None:
            return []
        (only,) = place_versions([only_version(self._db, codec.fact_from(row))])
        return [only] if only == msgspec.structs.replace(version, id=only.id) else []
