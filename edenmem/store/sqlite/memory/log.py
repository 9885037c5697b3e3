"""The log of changes, the history of facts and texts, and notes of what left the engine.

An entry of the log is written in the transaction of its change, together with history.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from edenmem.errors import DocumentDamaged
from edenmem.memory import VOID as VOID
from edenmem.memory import Origin
from edenmem.memory.facts import version_of
from edenmem.models.backup import TOMBSTONE, StoredVersion
from edenmem.models.backup import version_id as id_of_version
from edenmem.models.changes import Actor, action_of_command, action_of_new_fact
from edenmem.models.forgetting import Traces
from edenmem.models.memory import NO_FIELDS, Fact, FactFields, Reflection
from edenmem.models.records import AuditEntry, HistoryEntry, Seal, StoredEntry, salts_of
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.models.told import Note, Reply, Shown, forgotten_in, keys_of, pack, unpack, without
from edenmem.store.common.past import buffer_at, facts_at
from edenmem.store.protocol.memory import AuditKey, command_prefixes
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, Table, as_json, to_ms
from edenmem.store.sqlite.core.part import AMONG, Part, json_array, where
from edenmem.store.sqlite.core.scopes import OF_SCOPE, OF_SCOPES, scope_keys
from edenmem.store.sqlite.memory.memory import Memory

ENTRIES = Table(
    AuditEntry,
    "audit",
    "a",
    "id change_set_id action target_type target_id agent_id reason undoes place",
    times="at",
    others={
        "actor": as_json(Actor),
        "before": as_json(Any, None),
        "after": as_json(Any, None),
    },
)
VERSIONS = Table(
    HistoryEntry,
    "history",
    "h",
    "id target_type target_id version content action actor change_id",
    times="at",
    lists="absorbed_ids",
    others={
        "fields": as_json(FactFields, NO_FIELDS),
        "snapshot": (
            lambda column: column and msgspec.json.decode(column, type=Fact),
            lambda fact: fact and msgspec.json.encode(fact),
        ),
    },
)
(_ACTION,) = ENTRIES.places("action")
AUDIT = (
    f"SELECT s.kind, s.agent_id, s.owner, {ENTRIES.qualified}, a.at, a.audit_no"
    " FROM audit a LEFT JOIN scopes s USING (scope_id)"
)
#: The same with the columns of `StoredEntry` at the end.
STORED = codec.select_more(AUDIT, "a.salts", "a.erased")
_INSERT_ENTRY = ENTRIES.insert("scope_id", "salts", "erased")
_INSERT_VERSION = VERSIONS.insert("scope_id")
SHOWN = f"a.action <> '{VOID}'"

#: A condition for the command of an entry; its parameter is an array of prefixes.
_BEGINS = (
    "EXISTS (SELECT 1 FROM json_each(?) p"
    " WHERE substr(json_extract(a.actor, '$.command') || ' ', 1, length(p.value)) = p.value)"
)
#: Expression by kind of ID; the same as in the indexes.
_COLUMNS: dict[AuditKey, str] = {
    "entry": "id",
    "target": "target_id",
    "run": "json_extract(actor, '$.run_id')",
}

_PREFIX = 4

_NEXT_SEAL = "SELECT document, number FROM seals WHERE number > ? ORDER BY number LIMIT 1"
_INSERT_SEAL = "INSERT OR IGNORE INTO seals (number, document) VALUES (?, ?)"


def add_versions(
    connection: sqlite3.Connection, versions: Iterable[tuple[HistoryEntry | StoredVersion, int]]
) -> None:
    """Store versions, each with the number of its scope."""
    rows = [(*VERSIONS.values(each), scope_id) for each, scope_id in versions]
    connection.executemany(_INSERT_VERSION, rows)


def origin_of(connection: sqlite3.Connection, fact: Fact) -> Origin:
    """Describe the origin of a fact without history.

    Uses the audit entry of its addition, or the fact itself if it was added outside edenmem.
    """
    row = connection.execute(
        "SELECT id, actor FROM audit WHERE target_id = ? AND target_type = 'fact'"
        " AND action IN ('add_fact', 'revise_fact') ORDER BY at DESC, audit_no DESC LIMIT 1",
        (fact.id,),
    ).fetchone()
    if row is None:
        return Origin(action=action_of_new_fact(fact))
    change_id, stored_actor = row
    actor = msgspec.json.decode(stored_actor, type=Actor)
    action = action_of_command(actor.command) or action_of_new_fact(fact)
    return Origin(action=action, actor=actor.name, change_id=change_id)


def add_entries(
    connection: sqlite3.Connection, entries: Iterable[tuple[AuditEntry, int | None]]
) -> None:
    """Write audit entries, each with the number of its scope.

    A void entry has a mark in the place of its action.
    """
    marked = (
        (msgspec.structs.replace(entry, action=VOID) if entry.status == VOID else entry, scope_id)
        for entry, scope_id in entries
    )
    rows = [
        (
            *ENTRIES.values(entry),
            scope_id,
            msgspec.json.encode(salts_of(entry)).decode(),
            codec.to_list(entry.erased) if isinstance(entry, StoredEntry) else None,
        )
        for entry, scope_id in marked
    ]
    connection.executemany(_INSERT_ENTRY, rows)


def audit_from(row: Row) -> AuditEntry:
    """Decode a row of `AUDIT`."""
    scope = None if row[0] is None else codec.scope_of(*row[:3])
    status = VOID if row[_ACTION] == VOID else "done"
    return ENTRIES.make(row, scope=scope, status=status)


def stored_entry_from(row: Row) -> StoredEntry:
    """Decode a row of `STORED`."""
    salts, erased = row[ENTRIES.end + 2 : ENTRIES.end + 4]
    return StoredEntry(
        **msgspec.structs.asdict(audit_from(row)),
        salts=msgspec.json.decode(salts, type=dict[str, str]),
        erased=codec.from_list(erased),
    )


def _decode(raw: bytes) -> str | bytes:
    """Decode a text; one that is not UTF-8 stays as it is."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _read_entries(rows: Iterable[Row], unreadable: set[str] | None) -> Iterator[AuditEntry]:
    """Read rows of `AUDIT`; see `AuditLog.audit` for ``unreadable``."""
    for row in rows:
        try:
            if bytes in map(type, row):
                raise ValueError("text is not UTF-8")
            entry = audit_from(row)
        except codec.UNREADABLE as error:
            if unreadable is None:
                what = f"audit entry {row[3]} cannot be read"
                raise DocumentDamaged(f"{what}: {error}") from error
            unreadable.add(str(row[3]))
            continue
        yield entry


class AuditLog(Part):
    """See `edenmem.store.protocol.memory.AuditLog`."""

    def audit(
        self,
        *,
        agent_id: str | None = None,
        target_id: str | None = None,
        target_ids: Sequence[str] = (),
        scope: Scope | None = None,
        run_id: str | None = None,
        actor: str | None = None,
        command: str | None = None,
        actions: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        unreadable: set[str] | None = None,
    ) -> Iterator[AuditEntry]:
        conditions, values = where(
            ("a.agent_id = ?", agent_id),
            ("a.target_id = ?", target_id),
            (f"a.target_id {AMONG}", json_array(target_ids) if target_ids else None),
            ("json_extract(a.actor, '$.run_id') = ?", run_id),
            ("json_extract(a.actor, '$.name') = ?", actor),
            ("a.at >= ?", to_ms(since)),
            ("a.at < ?", to_ms(until)),
            (f"a.action {AMONG}", json_array(actions) if actions else None),
            (_BEGINS, None if command is None else json_array(command_prefixes(command))),
            (f"a.scope_id {OF_SCOPE}", None if scope is None else scope_keys(scope)),
        )
        rows = self._pages(
            f"{AUDIT} WHERE (a.at, a.audit_no) < (?, ?) AND {SHOWN}{conditions}"
            " ORDER BY a.at DESC, a.audit_no DESC LIMIT ?",
            values,
            (2**62, 2**62),
            lambda row: row[-2:],
            partial(self._fetch_entries, is_lenient=unreadable is not None),
        )
        return itertools.islice(_read_entries(rows, unreadable), limit)

    def _fetch_entries(self, query: str, values: Sequence[Any], *, is_lenient: bool) -> list[Row]:
        """Fetch rows; text that is not UTF-8 raises an error, or is read as bytes."""
        try:
            return self._fetch(query, values)
        except DocumentDamaged:
            if not is_lenient:
                raise
        with self._db.reading() as connection:
            connection.text_factory = _decode
            try:
                return connection.execute(query, values).fetchall()
            finally:
                connection.text_factory = str

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        return self.audit_entries([entry_id]).get(entry_id)

    def audit_entries(
        self, entry_ids: Sequence[str], *, unreadable: set[str] | None = None
    ) -> dict[str, AuditEntry]:
        rows = self._fetch_entries(
            f"{AUDIT} WHERE a.id {AMONG} AND {SHOWN}",
            (json_array(entry_ids),),
            is_lenient=unreadable is not None,
        )
        return {entry.id: entry for entry in _read_entries(rows, unreadable)}

    def stored_entries(self, entry_ids: Sequence[str]) -> dict[str, StoredEntry]:
        rows = self._fetch_entries(
            f"{STORED} WHERE a.id {AMONG} AND {SHOWN}", (json_array(entry_ids),), is_lenient=True
        )
        found = dict[str, StoredEntry]()
        for row in rows:
            with suppress(*codec.UNREADABLE):
                entry = stored_entry_from(row)
                found[entry.id] = entry
        return found

    def seals(self) -> Iterator[Seal]:
        number = 0
        while row := self._fetch_one(_NEXT_SEAL, (number,)):
            document, number = row
            try:
                yield msgspec.json.decode(document, type=Seal)
            except codec.UNREADABLE as error:
                raise DocumentDamaged(f"seal {number} cannot be read: {error}") from error

    def add_seal(self, seal: Seal) -> bool:
        document = msgspec.json.encode(seal).decode()
        return self._write(_INSERT_SEAL, (seal.number, document)) == 1

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        if len(prefix) < _PREFIX:
            return []
        column = _COLUMNS[key]
        rows = self._fetch(
            f"SELECT DISTINCT {column} AS found FROM audit a WHERE {column} >= ?"
            f" AND {column} < ? AND {SHOWN} ORDER BY found LIMIT ?",
            (prefix, prefix + "\U0010ffff", limit),
        )
        return [found for (found,) in rows]


_REPLIES = Table(
    Reply,
    "told_replies",
    "r",
    "id kind agent_id session_id user_id message_id context found",
    times="at built_at",
    start=0,
)
_INSERT = _REPLIES.insert(otherwise="OR IGNORE ")
_LISTS = f"(SELECT list_id FROM told_keys WHERE key {AMONG})"
#: The replies with one of these lists.
_IN_LISTS = (
    "r.id IN (SELECT x.id FROM told_keys k JOIN told_replies x"
    f" ON x.context = k.list_id OR x.found = k.list_id WHERE k.key {AMONG})"
)

#: The replies that are removed with a subject.
_OF_SUBJECT = (
    f"agent_id {AMONG} OR (coalesce(agent_id = ?, 1) AND (user_id {AMONG} OR session_id {AMONG}))"
)
#: Rows to remove in one transaction.
_AT_ONCE = 5000
_DAY = 24 * 60 * 60 * 1000


class Told(Part):
    """See `edenmem.store.protocol.memory.Told`."""

    def add(self, notes: Sequence[Note]) -> None:
        with self._db.writing(durable=False) as connection:
            add_notes(connection, notes)

    def replies(
        self,
        *,
        keys: Sequence[str] | None = None,
        reply_id: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        user_ids: Sequence[str] | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Reply]:
        conditions, values = where(
            (_IN_LISTS, None if keys is None else json_array(keys)),
            ("r.id = ?", reply_id),
            ("r.session_id = ?", session_id),
            ("r.agent_id = ?", agent_id),
            (f"r.user_id {AMONG}", None if user_ids is None else json_array(user_ids)),
            ("r.at < ?", to_ms(until)),
        )
        rows = self._fetch(
            f"SELECT {_REPLIES.qualified} FROM told_replies r WHERE 1{conditions}"
            " ORDER BY r.at DESC, r.id DESC LIMIT ?",
            (*values, -1 if limit is None else limit),
        )
        return [_REPLIES.make(row) for row in rows]

    def lists(self, ids: Sequence[str]) -> dict[str, tuple[Shown, ...]]:
        rows = self._fetch(f"SELECT id, items FROM told_lists WHERE id {AMONG}", (json_array(ids),))
        return {id: unpack(items) for id, items in rows}

    def prune(self, before: datetime) -> int:
        at, removed = to_ms(before), 0
        for table, condition in (
            ("told_replies", f"at < {at}"),
            ("told_lists", f"last_day < {at // _DAY * _DAY}"),
        ):
            while gone := self._write(
                f"DELETE FROM {table} WHERE id IN"
                f" (SELECT id FROM {table} WHERE {condition} LIMIT {_AT_ONCE})"
            ):
                removed += gone if table == "told_replies" else 0
        return removed


def add_notes(connection: sqlite3.Connection, notes: Sequence[Note]) -> None:
    """Store notes in a transaction; see `Told.add`."""
    for note in notes:
        at = to_ms(note.reply.at)
        for list_id, packed in note.lists.items():
            known = connection.execute(
                "UPDATE told_lists SET last_day = max(last_day, ?) WHERE id = ?",
                (at // _DAY * _DAY, list_id),
            ).rowcount
            if not known:
                connection.execute(
                    "INSERT INTO told_lists VALUES (?, ?, ?)", (list_id, packed, at // _DAY * _DAY)
                )
                _add_keys(connection, list_id, unpack(packed))
    connection.executemany(_INSERT, [_REPLIES.values(note.reply) for note in notes])
    rows = connection.execute(
        "SELECT b.key FROM forgettings f JOIN forgetting_blocks b ON b.forgetting_id = f.id"
        " WHERE f.closed_at IS NULL OR f.closed_at >= ?",
        (min((to_ms(note.reply.at) for note in notes), default=0),),
    )
    if blocks := {key for (key,) in rows}:
        replies, keys = forgotten_in(notes, blocks)
        connection.execute(f"DELETE FROM told_replies WHERE id {AMONG}", (json_array(replies),))
        erase_items(connection, keys)


def _add_keys(connection: sqlite3.Connection, list_id: str, items: Sequence[Shown]) -> None:
    rows = [(key, list_id) for key in keys_of(items)]
    connection.executemany("INSERT INTO told_keys VALUES (?, ?)", rows)


def erase_items(connection: sqlite3.Connection, keys: Collection[str]) -> None:
    """Erase the items with these keys from all lists."""
    found = connection.execute(
        f"SELECT id, items FROM told_lists WHERE id IN {_LISTS}", (json_array(keys),)
    ).fetchall()
    for list_id, packed in found:
        left = without(unpack(packed), keys)
        connection.execute("UPDATE told_lists SET items = ? WHERE id = ?", (pack(left), list_id))
        connection.execute("DELETE FROM told_keys WHERE list_id = ?", (list_id,))
        _add_keys(connection, list_id, left)


def _subject(traces: Traces) -> tuple[Any, ...]:
    """Return the values of `_OF_SUBJECT`."""
    agents = [scope.agent_id for scope in traces.scopes if scope.kind is ScopeKind.AGENT]
    accounts, own = json_array(traces.accounts), json_array(traces.own)
    return json_array(agents), traces.agent_id, accounts, own


def count_replies(connection: sqlite3.Connection, traces: Traces) -> int:
    """Count the replies that are removed with a subject."""
    (number,) = connection.execute(
        f"SELECT count(*) FROM told_replies WHERE {_OF_SUBJECT}", _subject(traces)
    ).fetchone()
    return int(number)


def erase_told(connection: sqlite3.Connection, traces: Traces) -> int:
    """Remove a subject's replies, and its scopes and facts from lists; count the replies."""
    erase_items(connection, {*(scope.key for scope in traces.scopes), *traces.facts})
    removed = connection.execute(f"DELETE FROM told_replies WHERE {_OF_SUBJECT}", _subject(traces))
    return removed.rowcount


HISTORY = (
    f"SELECT s.kind, s.agent_id, s.owner, {VERSIONS.qualified}"
    " FROM history h JOIN scopes s USING (scope_id)"
)


def history_from(row: Row) -> HistoryEntry:
    """Decode a row of `HISTORY`."""
    return VERSIONS.make(row, scope=codec.scope_of(*row[:3]))


def only_version(connection: sqlite3.Connection, fact: Fact) -> HistoryEntry:
    """Build the single version of a fact that never changed."""
    return version_of(fact, origin_of(connection, fact), fact.changed_at)


def place_version(entry: HistoryEntry, life: int) -> StoredVersion:
    """Add its place and the derived ID to a version."""
    place = (entry.version, life, entry.action == TOMBSTONE)
    id = id_of_version(entry.target_type, entry.target_id, place)
    return StoredVersion(**{**msgspec.structs.asdict(entry), "id": id, "life": life})


def place_versions(entries: Iterable[HistoryEntry]) -> Iterator[StoredVersion]:
    """Add places to the versions of one target, in order."""
    life, ended = 0, False
    for entry in entries:
        life, ended = life + ended, entry.action == TOMBSTONE
        yield place_version(entry, life)


class History(Part):
    """See `edenmem.store.protocol.memory.History`."""

    # -- versions ----------------------------------------------------------------------------------

    def versions(
        self, target_type: str, target_id: str, *, scope: Scope | None = None
    ) -> list[HistoryEntry]:
        owner, key, order = "h.target_id = ?", target_id, "h.history_no"
        if target_type == "consolidation" and scope is not None:
            owner, key, order = f"h.scope_id {OF_SCOPE}", scope_keys(scope), "h.version"
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{HISTORY} WHERE {owner} AND h.target_type = ? ORDER BY {order}",
                (key, target_type),
            )
            entries = [history_from(row) for row in rows]
            if target_type == "fact" and not entries:
                facts = connection.execute(f"{codec.FACT} WHERE f.id = ?", (target_id,))
                entries = [only_version(connection, fact) for fact in map(codec.fact_from, facts)]
        return [entry for entry in entries if scope is None or entry.scope == scope]

    # -- memory at a moment ------------------------------------------------------------------------

    def facts_at(self, scopes_: Sequence[Scope], moment: datetime, *, limit: int) -> list[Fact]:
        at = to_ms(moment)
        with self._db.snapshot(), self._db.reading() as connection:
            moves = connection.execute(
                f"{HISTORY} WHERE h.scope_id {OF_SCOPES} AND h.at > ? AND h.target_type = 'fact'"
                " AND h.action IN ('delete', 'restore') ORDER BY h.history_no",
                (scope_keys(*scopes_), at),
            ).fetchall()

            def find_versions(ids: Iterable[str]) -> dict[str, HistoryEntry]:
                rows = connection.execute(
                    f"{HISTORY} WHERE h.history_no IN (SELECT max(history_no) FROM history"
                    f" WHERE target_id {AMONG} AND target_type = 'fact' AND at <= ?"
                    " GROUP BY target_id)",
                    (json_array(ids), at),
                )
                return {entry.target_id: entry for entry in map(history_from, rows)}

            facts = Memory(self._db).facts(FactFilter(scopes=tuple(scopes_)))
            entries = map(history_from, moves)
            return facts_at(moment, facts, entries, find_versions, limit=limit)

    def pending_at(self, scope: Scope, moment: datetime) -> list[Reflection]:
        at = to_ms(moment)
        with self._db.reading() as connection:
            number = scopes.number_of(connection, scope)
            rows = connection.execute(
                f"{codec.REFLECTION} WHERE r.scope_id = ? AND r.formed_at <= ?"
                " AND (r.absorbed = 0 OR r.absorbed_at > ?)",
                (number, at, at),
            ).fetchall()
            entries = _rewriting(connection, number, at)
        return buffer_at(
            moment,
            map(codec.reflection_from, rows),
            entries,
            self.versions("consolidation", "", scope=scope) if entries else (),
        )


def _rewriting(connection: sqlite3.Connection, number: int | None, at: int) -> list[AuditEntry]:
    """Return the changes of a scope's buffer after ``at`` that its flags do not show, latest
    first.
    """
    rows = [
        row
        for condition in (
            "a.target_type = 'reflection'"
            " AND (a.before IS NOT NULL OR a.action = 'restore_reflection')",
            "a.action = 'revert_consolidation'",
        )
        for row in connection.execute(
            f"{AUDIT} WHERE a.scope_id = ? AND a.at > ? AND {condition}", (number, at)
        )
    ]
    rows.sort(key=lambda row: (-row[-2], -row[-1]))
    return [audit_from(row) for row in rows]
