"""The log of changes, written in the transaction of each change together with history."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import DocumentDamaged
from edenmem.memory import VOID as VOID
from edenmem.memory import Origin
from edenmem.models.backup import StoredVersion
from edenmem.models.changes import Actor, action_of_command, action_of_new_fact
from edenmem.models.memory import NO_FIELDS, Fact, FactFields
from edenmem.models.records import AuditEntry, HistoryEntry, Seal, StoredEntry, salts_of
from edenmem.models.scope import Scope
from edenmem.store.protocol.log import AuditKey, command_prefixes
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, Table, as_json, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, Part, json_array

#: The action of a tombstone.
REMOVED = "delete"

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
    """See `edenmem.store.protocol.log.AuditLog`."""

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
        where, values = "", list[Any]()
        for condition, value in (
            ("a.agent_id = ?", agent_id),
            ("a.target_id = ?", target_id),
            (
                "a.target_id IN (SELECT value FROM json_each(?))",
                json_array(target_ids) if target_ids else None,
            ),
            ("json_extract(a.actor, '$.run_id') = ?", run_id),
            ("json_extract(a.actor, '$.name') = ?", actor),
            ("a.at >= ?", to_ms(since)),
            ("a.at < ?", to_ms(until)),
            (
                "a.action IN (SELECT value FROM json_each(?))",
                json_array(actions) if actions else None,
            ),
        ):
            if value is not None:
                where += f" AND {condition}"
                values.append(value)
        if command is not None:
            beginnings = command_prefixes(command)
            said = "json_extract(a.actor, '$.command') || ' '"
            begins = " OR ".join(f"substr({said}, 1, ?) = ?" for _ in beginnings)
            where += f" AND ({begins})"
            values += [value for text in beginnings for value in (len(text), text)]
        if scope is not None:
            with self._db.reading() as connection:
                where += " AND a.scope_id = ?"
                values.append(scopes.number_of(connection, scope))
        return itertools.islice(self._audit_entries(where, values, unreadable), limit)

    def _audit_entries(
        self, where: str, values: Sequence[Any], unreadable: set[str] | None
    ) -> Iterator[AuditEntry]:
        last = (2**62, 2**62)
        while True:
            rows = self._fetch_entries(
                f"{AUDIT} WHERE (a.at, a.audit_no) < (?, ?) AND {SHOWN}{where}"
                " ORDER BY a.at DESC, a.audit_no DESC LIMIT ?",
                (*last, *values, BATCH),
                is_lenient=unreadable is not None,
            )
            yield from _read_entries(rows, unreadable)
            if len(rows) < BATCH:
                return
            last = rows[-1][-2:]

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
            f"{AUDIT} WHERE a.id IN (SELECT value FROM json_each(?)) AND {SHOWN}",
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
