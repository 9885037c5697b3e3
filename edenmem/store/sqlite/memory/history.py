"""History: versions, and memory at a point in time."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.memory import version_id
from edenmem.models.backup import TOMBSTONE, StoredVersion
from edenmem.models.backup import version_id as id_of_version
from edenmem.models.memory import Fact, Reflection
from edenmem.models.records import AuditEntry, HistoryEntry
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.common.past import buffer_at, facts_at
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, to_ms
from edenmem.store.sqlite.core.part import AMONG, Part, json_array
from edenmem.store.sqlite.memory import log
from edenmem.store.sqlite.memory.log import AUDIT, audit_from
from edenmem.store.sqlite.memory.memory import Memory

HISTORY = (
    f"SELECT s.kind, s.agent_id, s.owner, {log.VERSIONS.qualified}"
    " FROM history h JOIN scopes s USING (scope_id)"
)


def history_from(row: Row) -> HistoryEntry:
    """Decode a row of `HISTORY`."""
    return log.VERSIONS.make(row, scope=codec.scope_of(*row[:3]))


def only_version(connection: sqlite3.Connection, fact: Fact) -> HistoryEntry:
    """Build the single version of a fact that never changed."""
    origin = log.origin_of(connection, fact)
    return HistoryEntry(
        id=version_id("fact", fact.id, fact.version, origin.change_id),
        target_type="fact",
        target_id=fact.id,
        scope=fact.home,
        version=fact.version,
        content=fact.content,
        fields=fact.fields,
        at=fact.changed_at,
        action=origin.action,
        actor=origin.actor,
        change_id=origin.change_id,
    )


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
        with self._db.reading() as connection:
            if target_type == "consolidation" and scope is not None:
                rows = connection.execute(
                    f"{HISTORY} WHERE h.target_type = 'consolidation' AND h.scope_id = ?"
                    " ORDER BY h.version",
                    (scopes.number_of(connection, scope),),
                )
            else:
                rows = connection.execute(
                    f"{HISTORY} WHERE h.target_id = ? AND h.target_type = ? ORDER BY h.history_no",
                    (target_id, target_type),
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
            numbers = json_array(scopes.numbers_of(connection, scopes_).values())
            moves = connection.execute(
                f"{HISTORY} WHERE h.scope_id {AMONG} AND h.at > ? AND h.target_type = 'fact'"
                " AND h.action IN ('delete', 'restore') ORDER BY h.history_no",
                (numbers, at),
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
    return [audit_from(row) for row in sorted(rows, key=_latest_first)]


def _latest_first(row: Row) -> tuple[int, int]:
    return -row[-2], -row[-1]
