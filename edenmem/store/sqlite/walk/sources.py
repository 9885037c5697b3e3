"""The table of each kind of record, its filters, and the decoding of its rows."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from edenmem.models.backup import (
    RecordKind,
    Selection,
    StoredAgent,
    StoredMessage,
    StoredSession,
)
from edenmem.models.forgetting import Traces, whole_accounts
from edenmem.models.host import Message
from edenmem.models.memory import Consolidation
from edenmem.models.scope import ScopeKind
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, to_ms
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.formations.formations import FORMATION, FORMATIONS, formation_from
from edenmem.store.sqlite.formations.usage import ENTRIES as USAGE_ENTRIES
from edenmem.store.sqlite.host.rows import (
    AGENT,
    AGENTS,
    MESSAGE,
    MESSAGES,
    SESSION,
    SESSIONS,
    STORED_USER,
    session_from,
    stored_user_from,
)
from edenmem.store.sqlite.memory.log import (
    ENTRIES,
    HISTORY,
    STORED,
    VERSIONS,
    history_from,
    only_version,
    place_version,
    stored_entry_from,
)


class Where:
    """Conditions with their values."""

    def __init__(self) -> None:
        self.text = "1"
        self.values: list[Any] = []
        self.is_indexed = False

    def add(self, condition: str, *values: Any) -> Where:
        """Add a condition."""
        self.text += f" AND {condition}"
        self.values += values
        return self

    def find(self, condition: str, *values: Any) -> Where:
        """Add a condition that finds rows by an index."""
        self.is_indexed = True
        return self.add(condition, *values)

    def among(self, column: str, ids: Sequence[str] | None) -> Where:
        """Limit a column to these IDs, unless they are None."""
        return self if ids is None else self.find(f"{column} {AMONG}", json_array(ids))


class Source(NamedTuple):
    """A kind of record in the file.

    Attributes:
        table: The table, with the alias of the columns below.
        joined: Tables to join before it, for the order.
        order: The text columns of the order, compared by bytes.
        number: The column with the row number; None: the last column of the order.
        select: The columns to decode, the ID, and the agent.
        limit: Limits rows to the agents, scopes and traces of a selection.
        decode: Decodes a row. Raises one of `codec.UNREADABLE` for a damaged row.
        long: The places of long values in ``select``.
        classes: Conditions that split the rows into consecutive classes.
        changed: The time of the last change; "" if `Selection.since` does not apply.
    """

    table: str
    order: tuple[str, ...]
    number: str | None
    select: str
    limit: Callable[[Where, Selection], object]
    decode: Callable[[sqlite3.Connection, Row], Any]
    long: tuple[int, ...] = ()
    classes: tuple[str, ...] = ("1",)
    joined: str = ""
    changed: str = ""

    @property
    def rows(self) -> str:
        """Return the tables that rows are found and counted in."""
        return f"{self.joined}{self.table}"

    def narrow(self, wanted: Selection) -> Where:
        """Return the conditions of a selection."""
        where = Where()
        self.limit(where, wanted)
        if wanted.since is not None and self.changed:
            where.add(f"{self.changed} >= ?", to_ms(wanted.since))
        return where


# -- narrowing -------------------------------------------------------------------------------------

#: Messages by the accounts of a subject, or given ones.
BY_SUBJECT = f"(m.sender {AMONG} OR m.id {AMONG})"
#: Formations of such messages, including superseded ones.
FROM_SUBJECT = (
    "EXISTS (SELECT 1 FROM messages m WHERE m.id IN (SELECT fm.message_id FROM formation_messages"
    " fm WHERE fm.formation_id = formations.id UNION ALL SELECT value FROM"
    f" json_each(coalesce(formations.superseded_message_ids, '[]'))) AND {BY_SUBJECT})"
)

#: Audit entries of accounts, which have no scope and contain names.
OF_ACCOUNTS = f"target_id {AMONG} AND target_type = 'user'"

#: Versions and audit entries of single facts.
OF_FACTS = f"target_id {AMONG} AND target_type = 'fact'"


def _of_agents(column: str) -> Callable[[Where, Selection], object]:
    return lambda where, wanted: where.among(column, wanted.agent_ids or None)


def _limit_sessions(where: Where, wanted: Selection) -> None:
    _of_members(where, "s.id", wanted)
    where.among("s.id", None if wanted.traces is None else wanted.traces.own)


def _limit_messages(where: Where, wanted: Selection) -> None:
    _of_members(where, "m.session_id", wanted)
    if wanted.traces is not None:
        where.find(
            f"(m.session_id {AMONG} OR (m.session_id {AMONG} AND {BY_SUBJECT}))",
            *_subject(wanted.traces),
        )


def _of_members(where: Where, column: str, wanted: Selection) -> None:
    for role, ids in (("agent", wanted.agent_ids), ("user", wanted.member_ids)):
        if ids:
            where.find(
                f"{column} IN (SELECT x.session_id FROM session_members x"
                f" WHERE x.role = '{role}' AND x.member_id {AMONG})",
                json_array(ids),
            )


def _subject(traces: Traces) -> Iterable[str]:
    return map(json_array, (traces.own, traces.shared, traces.accounts, traces.messages))


def _limit_formations(where: Where, wanted: Selection) -> None:
    where.among("formations.agent_id", wanted.agent_ids or None)
    if (traces := wanted.traces) is not None:
        if traces.agent_id is not None:
            where.add("formations.agent_id = ?", traces.agent_id)
        where.find(
            f"(formations.session_id {AMONG}"
            f" OR (formations.session_id {AMONG} AND {FROM_SUBJECT}))",
            *_subject(traces),
        )


def _of_scopes(column: str) -> Callable[[Where, Selection], object]:
    """Limit rows to the selected scopes, by agent, kind or owner, and to those of traces."""

    def limit(where: Where, wanted: Selection) -> None:
        _limit_scopes(where, column, wanted)
        if wanted.traces is not None:
            where.find(f"{column} {scopes.OF_SCOPES}", scopes.scope_keys(*wanted.traces.scopes))

    return limit


def _limit_scopes(where: Where, column: str, wanted: Selection) -> None:
    owned = Where().among("o.agent_id", wanted.agent_ids or None)
    owned.among("o.kind", [kind.value for kind in wanted.kinds] or None)
    if wanted.user_ids is not None:
        owned.find("o.owner <> '' AND o.kind = ?", ScopeKind.USER.value)
        owned.among("o.owner", wanted.user_ids)
    if owned.is_indexed:
        select = f"SELECT o.scope_id FROM scopes o WHERE {owned.text}"
        where.find(f"{column} IN ({select})", *owned.values)


def _of_memory(
    table: str, number: str, ids: Callable[[Traces], tuple[str, ...]] = lambda _: ()
) -> Callable[[Where, Selection], object]:
    """Limit rows to selected scopes; of traces, also to those from their sources, or with IDs."""

    def limit(where: Where, wanted: Selection) -> None:
        _limit_scopes(where, f"{table.split()[1]}.scope_id", wanted)
        if (traces := wanted.traces) is not None:
            rows = f"SELECT {number} FROM {table} WHERE"
            where.find(
                f"{number} IN ({rows} scope_id {scopes.OF_SCOPES}"
                f" UNION {rows} session_id {AMONG} UNION {rows} id {AMONG})",
                scopes.scope_keys(*traces.scopes),
                json_array(traces.sources),
                json_array(ids(traces)),
            )

    return limit


def _limit_audit(where: Where, wanted: Selection) -> None:
    if wanted.kinds or wanted.user_ids is not None:
        _limit_scopes(where, "a.scope_id", wanted)
    else:
        where.among("a.agent_id", wanted.agent_ids or None)
    if wanted.traces is not None:  # entries of accounts have no scope
        where.find(
            f"(a.scope_id {scopes.OF_SCOPES} OR ({OF_ACCOUNTS}) OR ({OF_FACTS}))",
            scopes.scope_keys(*wanted.traces.scopes),
            json_array(whole_accounts(wanted.traces)),
            json_array(wanted.traces.facts),
        )


def _limit_history(where: Where, wanted: Selection) -> None:
    _limit_scopes(where, "h.scope_id", wanted)
    if wanted.traces is not None:
        where.find(
            f"(h.scope_id {scopes.OF_SCOPES} OR ({OF_FACTS}))",
            scopes.scope_keys(*wanted.traces.scopes),
            json_array(wanted.traces.facts),
        )


def _limit_policies(where: Where, wanted: Selection) -> None:
    _of_scopes("s.scope_id")(where, wanted)
    where.add("p.scope_id = s.scope_id")


def _limit_unchanged(where: Where, wanted: Selection) -> None:
    _of_scopes("f.scope_id")(where, wanted)
    where.add(
        "NOT EXISTS (SELECT 1 FROM history h WHERE h.target_id = f.id AND h.target_type = 'fact')"
    )


def count_rows(
    connection: sqlite3.Connection, kind: RecordKind, wanted: Selection, condition: str = "1"
) -> int:
    """Count the rows of a selection that meet a condition."""
    where = SOURCES[kind].narrow(wanted)
    found: int = connection.execute(
        f"SELECT count(*) FROM {SOURCES[kind].rows} WHERE {where.text} AND {condition}",
        where.values,
    ).fetchone()[0]
    return found


# -- decoding --------------------------------------------------------------------------------------


def _agent(connection: sqlite3.Connection, row: Row) -> StoredAgent:
    return StoredAgent(**msgspec.structs.asdict(AGENTS.make(row)), deleted=bool(row[AGENTS.end]))


def _session(connection: sqlite3.Connection, row: Row) -> StoredSession:
    fields = msgspec.structs.asdict(session_from(connection, row))
    return StoredSession(**fields, last_memory_message_id=row[SESSIONS.end])


def _message(connection: sqlite3.Connection, row: Row) -> Message:
    message = MESSAGES.make(row)
    if not row[MESSAGES.end]:
        return message
    return StoredMessage(**msgspec.structs.asdict(message), forgotten=True)


def _consolidation(connection: sqlite3.Connection, row: Row) -> Consolidation:
    pending = connection.execute(
        "SELECT r.id FROM reflections r JOIN consolidations c USING (scope_id)"
        " WHERE c.id = ? AND r.absorbed = 0 ORDER BY r.formed_at, r.place, r.id",
        (row[3],),
    )
    return codec.consolidation_from(row, [reflection_id for (reflection_id,) in pending])


# -- the table -------------------------------------------------------------------------------------


SOURCES: dict[RecordKind, Source] = {
    RecordKind.AGENT: Source(
        table="agents",
        order=("agents.id",),
        number=None,
        select=codec.select_more(AGENT, "deleted", "id", "''"),
        limit=_of_agents("agents.id"),
        decode=_agent,
        long=AGENTS.places("persona"),
    ),
    RecordKind.USER: Source(
        table="users",
        order=("users.id",),
        number=None,
        select=codec.select_more(STORED_USER, "id", "''"),
        limit=lambda where, wanted: where.among("users.id", wanted.account_ids),
        decode=lambda _, row: stored_user_from(row),
    ),
    RecordKind.SESSION: Source(
        table="sessions s",
        order=("s.id",),
        number=None,
        select=codec.select_more(SESSION, "last_memory_message_id", "id", "''"),
        limit=_limit_sessions,
        decode=_session,
        changed="coalesce(s.last_activity, s.created_at, -1)",
    ),
    RecordKind.MESSAGE: Source(
        table="messages m",
        order=("m.session_id", "m.id"),
        number=None,
        select=codec.select_more(
            MESSAGE, "m.id IN (SELECT id FROM forgotten_messages)", "m.id", "''"
        ),
        limit=_limit_messages,
        decode=_message,
        changed="m.created_at",
        long=MESSAGES.places("content", "tool_calls"),
    ),
    RecordKind.POLICY: Source(
        table="policies p",
        joined="scopes s CROSS JOIN ",
        order=("s.agent_id", "s.kind", "s.owner"),
        number="p.scope_id",
        select=codec.select_more(codec.POLICY, "p.id", "s.agent_id"),
        limit=_limit_policies,
        decode=lambda _, row: codec.policy_from(row),
        changed="p.updated_at",
        long=codec.POLICIES.places("memory_instructions", "consolidation_instructions"),
    ),
    RecordKind.CONSOLIDATION: Source(
        table="consolidations c",
        order=("c.id",),
        number="c.scope_id",
        select=codec.select_more(codec.CONSOLIDATION, "c.id", "s.agent_id"),
        limit=_of_scopes("c.scope_id"),
        changed="c.updated_at",
        decode=_consolidation,
        long=codec.TEXTS.places("consolidated_content"),
    ),
    RecordKind.REFLECTION: Source(
        table="reflections r",
        order=("r.id",),
        number="r.reflection_no",
        select=codec.select_more(codec.REFLECTION, "r.id", "s.agent_id"),
        limit=_of_memory("reflections r", "r.reflection_no"),
        changed="max(r.formed_at, coalesce(r.updated_at, 0), coalesce(r.absorbed_at, 0))",
        decode=lambda _, row: codec.reflection_from(row),
        long=codec.REFLECTIONS.places("content"),
    ),
    RecordKind.FACT: Source(
        table="facts f",
        order=("f.id",),
        number="f.fact_no",
        select=codec.select_more(codec.FACT, "f.id", "s.agent_id"),
        limit=_of_memory("facts f", "f.fact_no", lambda traces: traces.facts),
        changed="f.changed_at",
        decode=lambda _, row: codec.fact_from(row),
        long=codec.FACTS.places("content", "previous_content", "quote"),
    ),
    RecordKind.HELD: Source(
        table="held e",
        order=("e.id",),
        number="e.held_no",
        select=codec.select_more(codec.HELD, "e.id", "s.agent_id"),
        limit=_of_memory("held e", "e.held_no", lambda traces: traces.held),
        changed="e.held_at",
        decode=lambda _, row: codec.held_from(row),
        long=codec.HELD_ITEMS.places("content", "quote", "reasons"),
    ),
    RecordKind.FORMATION: Source(
        table="formations",
        order=("formations.id",),
        number=None,
        select=codec.select_more(FORMATION, "id", "agent_id"),
        limit=_limit_formations,
        changed="formations.updated_at",
        decode=formation_from,
        long=FORMATIONS.places("error", "decisions", "usage", "counts", "changes"),
    ),
    RecordKind.USAGE: Source(
        table="usage_entries u",
        order=("u.id",),
        number=None,
        select=f"SELECT {USAGE_ENTRIES.qualified}, u.id, u.agent_id FROM usage_entries u",
        limit=_of_agents("u.agent_id"),
        changed="u.at",
        decode=lambda _, row: USAGE_ENTRIES.make(row),
        long=USAGE_ENTRIES.places("calls"),
    ),
    RecordKind.AUDIT: Source(
        table="audit a",
        order=("a.id",),
        number="a.audit_no",
        select=codec.select_more(STORED, "a.id", "a.agent_id"),
        limit=_limit_audit,
        changed="a.at",
        decode=lambda _, row: stored_entry_from(row),
        long=ENTRIES.places("before", "after"),
    ),
    RecordKind.HISTORY: Source(
        table="history h",
        order=("h.target_id",),
        number="h.history_no",
        select=codec.select_more(HISTORY, "h.id", "s.agent_id"),
        limit=_limit_history,  # the place of a version depends on earlier ones, of any time
        decode=lambda _, row: history_from(row),
        long=VERSIONS.places("content", "snapshot"),
        classes=(
            "h.target_type = 'consolidation'",
            "h.target_type = 'fact'",
            "h.target_type NOT IN ('consolidation', 'fact')",
        ),
    ),
}

FACTS_WITH_VECTORS = SOURCES[RecordKind.FACT]._replace(
    select=codec.select_more(codec.FACT_WITH_VECTOR, "f.id", "s.agent_id")
)

#: The single version of each fact without history.
UNWRITTEN = SOURCES[RecordKind.FACT]._replace(
    limit=_limit_unchanged,
    decode=lambda db, row: place_version(only_version(db, codec.fact_from(row)), 0),
)
