"""Reading the whole file for a backup, in one transaction: all of it is of one moment."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from edenmem.models.backup import (
    TOMBSTONE,
    Record,
    RecordKind,
    Selection,
    StoredAgent,
    StoredSession,
    StoredVersion,
    version_id,
)
from edenmem.models.changes import HistoryEntry
from edenmem.models.formation import CallUsage, UsageEntry
from edenmem.models.memory import Consolidation
from edenmem.models.scope import ScopeKind
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.formations.formations import COLUMNS, formation_from
from edenmem.store.sqlite.host.rows import (
    AGENT,
    MESSAGE,
    SESSION,
    STORED_USER,
    agent_from,
    message_from,
    session_from,
    stored_user_from,
)
from edenmem.store.sqlite.memory import log
from edenmem.store.sqlite.memory.history import HISTORY, history_from, only_version
from edenmem.store.sqlite.memory.log import AUDIT, audit_from


class Where:
    """Conditions of a query, and the values that they are about."""

    def __init__(self) -> None:
        self.text = "1"
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> Where:
        """Demand one thing more."""
        self.text += f" AND {condition}"
        self.values += values
        return self


class Dump:
    """Rows of one connection as records."""

    def __init__(
        self, connection: sqlite3.Connection, selection: Selection, with_vectors: bool
    ) -> None:
        self._db = connection
        self._selection = selection
        self._with_vectors = with_vectors
        self._since = to_ms(selection.since)

    def read(self, kinds: Sequence[RecordKind]) -> Iterator[tuple[RecordKind, Record]]:
        """The records of these kinds, kind by kind."""
        for kind in RecordKind:
            if kind in kinds:
                for record in _READERS[kind](self):
                    yield kind, record

    # -- what the platform owns --------------------------------------------------------------

    def read_agent(self) -> Iterator[Record]:
        where = Where()
        if self._selection.agent_ids:
            where.add(f"id {AMONG}", json_array(self._selection.agent_ids))
        for row in self._rows(_with(AGENT, "deleted"), where, "id"):
            yield StoredAgent(**msgspec.structs.asdict(agent_from(row)), deleted=bool(row[-1]))

    def read_user(self) -> Iterator[Record]:
        where = Where()
        if self._selection.account_ids is not None:
            where.add(f"id {AMONG}", json_array(self._selection.account_ids))
        for row in self._rows(STORED_USER, where, "id"):
            yield stored_user_from(row)

    def read_session(self) -> Iterator[Record]:
        where = self._of_sessions("s.id")
        if self._since is not None:
            where.add("coalesce(s.last_activity, s.created_at, -1) >= ?", self._since)
        for row in self._rows(_with(SESSION, "last_memory_message_id"), where, "id"):
            fields = msgspec.structs.asdict(session_from(self._db, row))
            yield StoredSession(**fields, last_memory_message_id=row[-1])

    def read_message(self) -> Iterator[Record]:
        where = self._of_sessions("m.session_id")
        if self._since is not None:
            where.add("m.created_at >= ?", self._since)
        return map(message_from, self._rows(MESSAGE, where, "m.session_id, m.id"))

    def _of_sessions(self, column: str) -> Where:
        where = Where()
        for role, ids in (
            ("agent", self._selection.agent_ids),
            ("user", self._selection.member_ids),
        ):
            if ids:
                where.add(
                    f"{column} IN (SELECT session_id FROM session_members"
                    f" WHERE role = '{role}' AND member_id {AMONG})",
                    json_array(ids),
                )
        return where

    # -- memory ------------------------------------------------------------------------------

    def read_policy(self) -> Iterator[Record]:
        where = self._of_scopes()
        if self._since is not None:
            where.add("p.updated_at >= ?", self._since)
        rows = self._rows(codec.POLICY, where, "s.agent_id, s.kind, s.owner")
        return map(codec.policy_from, rows)

    def read_consolidation(self) -> Iterator[Record]:
        where = self._of_scopes()
        if self._since is not None:
            where.add("c.updated_at >= ?", self._since)
        rows = self._rows(codec.CONSOLIDATION, where, "c.id")
        return (_stamp(codec.consolidation_from(row, ())) for row in rows)

    def read_reflection(self) -> Iterator[Record]:
        where = self._of_scopes()
        if self._since is not None:
            where.add(
                "max(r.formed_at, coalesce(r.updated_at, 0), coalesce(r.absorbed_at, 0)) >= ?",
                self._since,
            )
        return map(codec.reflection_from, self._rows(codec.REFLECTION, where, "r.id"))

    def read_fact(self) -> Iterator[Record]:
        where = self._of_scopes()
        if self._since is not None:
            where.add("f.recent_at >= ?", self._since)
        select = codec.FACT_WITH_VECTOR if self._with_vectors else codec.FACT
        for row in self._rows(select, where, "f.id"):
            fact = codec.fact_from(row)
            if fact.embedding is None and fact.embedding_model is not None:
                fact = msgspec.structs.replace(fact, embedding_model=None)
            yield fact

    def _of_scopes(self) -> Where:
        where, wanted = Where(), self._selection
        if wanted.agent_ids:
            where.add(f"s.agent_id {AMONG}", json_array(wanted.agent_ids))
        if wanted.kinds:
            where.add(f"s.kind {AMONG}", json_array(kind.value for kind in wanted.kinds))
        if wanted.user_ids is not None:
            where.add("s.kind = ?", ScopeKind.USER.value)
            where.add(f"s.owner {AMONG}", json_array(wanted.user_ids))
        return where

    # -- what happened -----------------------------------------------------------------------

    def read_formation(self) -> Iterator[Record]:
        where = self._of_agents("updated_at")
        for row in self._rows(f"SELECT {COLUMNS}, changes FROM formations", where, "id"):
            yield formation_from(self._db, row)

    def read_usage(self) -> Iterator[Record]:
        where = self._of_agents("at")
        select = "SELECT id, at, agent_id, work, calls FROM usage_entries"
        for id, at, agent_id, work, calls in self._rows(select, where, "id"):
            yield UsageEntry(
                id=id,
                at=codec.time(at),
                agent_id=agent_id,
                work=work,
                calls=msgspec.json.decode(calls, type=tuple[CallUsage, ...]),
            )

    def _of_agents(self, time: str) -> Where:
        where = Where()
        if self._selection.agent_ids:
            where.add(f"agent_id {AMONG}", json_array(self._selection.agent_ids))
        if self._since is not None:
            where.add(f"{time} >= ?", self._since)
        return where

    def read_audit(self) -> Iterator[Record]:
        where, wanted = Where().add("a.action <> ?", log.VOID), self._selection
        if wanted.kinds or wanted.user_ids is not None:
            where = self._of_scopes().add("a.action <> ?", log.VOID)
        elif wanted.agent_ids:
            where.add(f"a.agent_id {AMONG}", json_array(wanted.agent_ids))
        if self._since is not None:
            where.add("a.at >= ?", self._since)
        return map(audit_from, self._rows(AUDIT, where, "a.id"))

    def read_history(self) -> Iterator[Record]:
        texts = self._read_versions("consolidation")
        facts = heapq.merge(
            self._read_versions("fact"),
            self._never_changed(),
            key=lambda version: version.target_id,
        )
        for versions in (texts, facts):
            for version in versions:
                if self._selection.since is None or version.at >= self._selection.since:
                    yield version

    def _read_versions(self, target_type: str) -> Iterator[StoredVersion]:
        where = self._of_scopes().add("h.target_type = ?", target_type)
        rows = self._rows(HISTORY, where, "h.target_id, h.history_no")
        for _, entries in groupby(map(history_from, rows), key=lambda entry: entry.target_id):
            yield from place_versions(entries)

    def _never_changed(self) -> Iterator[StoredVersion]:
        """The one version of each fact of which history has nothing written down."""
        where = self._of_scopes().add(
            "NOT EXISTS (SELECT 1 FROM history h"
            " WHERE h.target_id = f.id AND h.target_type = 'fact')"
        )
        for fact in map(codec.fact_from, self._rows(codec.FACT, where, "f.id")):
            yield from place_versions([only_version(self._db, fact)])

    def _rows(self, select: str, where: Where, order: str) -> Iterator[Any]:
        return self._db.execute(f"{select} WHERE {where.text} ORDER BY {order}", where.values)


def place_versions(entries: Any) -> Iterator[StoredVersion]:
    """Versions of one target, in order, each with its place and the id that goes with it."""
    life, ended = 0, False
    entry: HistoryEntry
    for entry in entries:
        life, ended = life + ended, entry.action == TOMBSTONE
        version = StoredVersion(**msgspec.structs.asdict(entry), life=life)
        id = version_id(version.target_type, version.target_id, version.place)
        yield msgspec.structs.replace(version, id=id)


def _stamp(text: Consolidation) -> Consolidation:
    """A document that holds a buffer only has no time of its own."""
    return text if text.version else msgspec.structs.replace(text, updated_at=None)


def _with(select: str, column: str) -> str:
    return select.replace(" FROM ", f", {column} FROM ", 1)


_READERS: dict[RecordKind, Callable[[Dump], Iterator[Record]]] = {
    RecordKind.AGENT: Dump.read_agent,
    RecordKind.USER: Dump.read_user,
    RecordKind.SESSION: Dump.read_session,
    RecordKind.MESSAGE: Dump.read_message,
    RecordKind.POLICY: Dump.read_policy,
    RecordKind.CONSOLIDATION: Dump.read_consolidation,
    RecordKind.REFLECTION: Dump.read_reflection,
    RecordKind.FACT: Dump.read_fact,
    RecordKind.FORMATION: Dump.read_formation,
    RecordKind.USAGE: Dump.read_usage,
    RecordKind.AUDIT: Dump.read_audit,
    RecordKind.HISTORY: Dump.read_history,
}
