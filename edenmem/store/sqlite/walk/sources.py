"""The table of each kind of record, its filters, and the decoding of its rows."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from edenmem.models.backup import (
    RecordKind,
    Selection,
    StoredAgent,
    StoredMessage,
    StoredSession,
    StoredUser,
    StoredVersion,
)
from edenmem.models.forgetting import Traces, whole_accounts
from edenmem.models.formation import Formation, UsageEntry, calls_from
from edenmem.models.host import Message
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.records import HistoryEntry, StoredEntry
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import Row, to_ms
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.formations.formations import COLUMNS, formation_from
from edenmem.store.sqlite.formations.usage import decode_calls
from edenmem.store.sqlite.host.rows import (
    AGENT,
    AGENTS,
    MESSAGE,
    MESSAGES,
    SESSION,
    SESSIONS,
    STORED_USER,
    agent_from,
    message_from,
    session_from,
    stored_user_from,
)
from edenmem.store.sqlite.memory.history import HISTORY, history_from, only_version, place_version
from edenmem.store.sqlite.memory.log import ENTRIES, STORED, VERSIONS, stored_entry_from


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


class Source(NamedTuple):
    """A kind of record in the file.

    Attributes:
        table: The table, with the alias of the columns below.
        joined: Tables to join before it, for the order.
        order: The text columns of the order, compared by bytes.
        number: The column with the row number; None: the last column of the order.
        select: The columns to decode, the ID, and the agent.
        narrow: Returns the conditions of a selection.
        decode: Decodes a row. Raises one of `codec.UNREADABLE` for a damaged row.
        long: The places of long values in ``select``.
        classes: Conditions that split the rows into consecutive classes.
    """

    table: str
    order: tuple[str, ...]
    number: str | None
    select: str
    narrow: Callable[[Selection], Where]
    decode: Callable[[sqlite3.Connection, Row], Any]
    long: tuple[int, ...]
    classes: tuple[str, ...] = ("1",)
    joined: str = ""

    @property
    def rows(self) -> str:
        """Return the tables that rows are found and counted in."""
        return f"{self.joined}{self.table}"


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

#: The numbers of individually selected scopes.
_NAMED = (
    "SELECT o.scope_id FROM json_each(?) n CROSS JOIN scopes o"
    " ON o.agent_id = json_extract(n.value, '$[0]') AND o.kind = json_extract(n.value, '$[1]')"
    " AND o.owner = json_extract(n.value, '$[2]')"
)


def _names(scopes: Sequence[Scope]) -> str:
    return json.dumps([(scope.agent_id, scope.kind.value, scope.owner) for scope in scopes])


def _agents(wanted: Selection) -> Where:
    where = Where()
    if wanted.agent_ids:
        where.find(f"agents.id {AMONG}", json_array(wanted.agent_ids))
    return where


def _users(wanted: Selection) -> Where:
    where = Where()
    if wanted.account_ids is not None:
        where.find(f"users.id {AMONG}", json_array(wanted.account_ids))
    return where


def _sessions(wanted: Selection) -> Where:
    where = _of_members("s.id", wanted)
    if wanted.since is not None:
        where.add("coalesce(s.last_activity, s.created_at, -1) >= ?", to_ms(wanted.since))
    if wanted.traces is not None:
        where.find(f"s.id {AMONG}", json_array(wanted.traces.own))
    return where


def _messages(wanted: Selection) -> Where:
    where = _of_members("m.session_id", wanted)
    if wanted.since is not None:
        where.add("m.created_at >= ?", to_ms(wanted.since))
    if wanted.traces is not None:
        where.find(
            f"(m.session_id {AMONG} OR (m.session_id {AMONG} AND {BY_SUBJECT}))",
            json_array(wanted.traces.own),
            json_array(wanted.traces.shared),
            json_array(wanted.traces.accounts),
            json_array(wanted.traces.messages),
        )
    return where


def _of_members(column: str, wanted: Selection) -> Where:
    where = Where()
    for role, ids in (("agent", wanted.agent_ids), ("user", wanted.member_ids)):
        if ids:
            where.find(
                f"{column} IN (SELECT x.session_id FROM session_members x"
                f" WHERE x.role = '{role}' AND x.member_id {AMONG})",
                json_array(ids),
            )
    return where


def _policies(wanted: Selection) -> Where:
    where = _of_traced_scopes("s.scope_id", wanted).add("p.scope_id = s.scope_id")
    if wanted.since is not None:
        where.add("p.updated_at >= ?", to_ms(wanted.since))
    return where


def _consolidations(wanted: Selection) -> Where:
    where = _of_traced_scopes("c.scope_id", wanted)
    if wanted.since is not None:
        where.add("c.updated_at >= ?", to_ms(wanted.since))
    return where


def _reflections(wanted: Selection) -> Where:
    where = _of_scopes("r.scope_id", wanted)
    if wanted.since is not None:
        where.add(
            "max(r.formed_at, coalesce(r.updated_at, 0), coalesce(r.absorbed_at, 0)) >= ?",
            to_ms(wanted.since),
        )
    if wanted.traces is not None:
        _add_traces(where, "reflections", "r.reflection_no", wanted.traces, ())
    return where


def _held(wanted: Selection) -> Where:
    where = _of_scopes("e.scope_id", wanted)
    if wanted.since is not None:
        where.add("e.held_at >= ?", to_ms(wanted.since))
    if (traces := wanted.traces) is not None:
        _add_traces(where, "held", "e.held_no", traces, traces.held)
    return where


def _facts(wanted: Selection) -> Where:
    where = _of_scopes("f.scope_id", wanted)
    if wanted.since is not None:
        where.add("f.changed_at >= ?", to_ms(wanted.since))
    if wanted.traces is not None:
        _add_traces(where, "facts", "f.fact_no", wanted.traces, wanted.traces.facts)
    return where


def _of_scopes(column: str, wanted: Selection) -> Where:
    """Limit rows to the selected scopes, by agent, kind or owner."""
    where = Where()
    if wanted.agent_ids:
        where.find(f"o.agent_id {AMONG}", json_array(wanted.agent_ids))
    if wanted.kinds:
        where.find(f"o.kind {AMONG}", json_array(kind.value for kind in wanted.kinds))
    if wanted.user_ids is not None:
        where.find("o.owner <> '' AND o.kind = ?", ScopeKind.USER.value)
        where.find(f"o.owner {AMONG}", json_array(wanted.user_ids))
    if where.is_indexed:
        where.text = f"{column} IN (SELECT o.scope_id FROM scopes o WHERE {where.text})"
    return where


def _of_traced_scopes(column: str, wanted: Selection) -> Where:
    where = _of_scopes(column, wanted)
    if wanted.traces is not None:
        where.find(f"{column} IN ({_NAMED})", _names(wanted.traces.scopes))
    return where


def _add_traces(where: Where, table: str, number: str, traces: Traces, ids: Sequence[str]) -> None:
    """Limit rows to the scopes of the traces, to memory from their sources, and to these IDs."""
    column = number.partition(".")[2]
    where.find(
        f"{number} IN (SELECT t.{column} FROM {table} t WHERE t.scope_id IN ({_NAMED})"
        f" UNION SELECT t.{column} FROM {table} t WHERE t.session_id {AMONG}"
        f" UNION SELECT t.{column} FROM {table} t WHERE t.id {AMONG})",
        _names(traces.scopes),
        json_array(traces.sources),
        json_array(ids),
    )


def _formations(wanted: Selection) -> Where:
    where = _of_agents("formations.agent_id", wanted)
    if wanted.since is not None:
        where.add("formations.updated_at >= ?", to_ms(wanted.since))
    if (traces := wanted.traces) is not None:
        if traces.agent_id is not None:
            where.add("formations.agent_id = ?", traces.agent_id)
        where.find(
            f"(formations.session_id {AMONG}"
            f" OR (formations.session_id {AMONG} AND {FROM_SUBJECT}))",
            json_array(traces.own),
            json_array(traces.shared),
            json_array(traces.accounts),
            json_array(traces.messages),
        )
    return where


def _usage(wanted: Selection) -> Where:
    where = _of_agents("u.agent_id", wanted)
    if wanted.since is not None:
        where.add("u.at >= ?", to_ms(wanted.since))
    return where


def _of_agents(column: str, wanted: Selection) -> Where:
    where = Where()
    if wanted.agent_ids:
        where.find(f"{column} {AMONG}", json_array(wanted.agent_ids))
    return where


def _audit(wanted: Selection) -> Where:
    of_scopes = wanted.kinds or wanted.user_ids is not None
    where = _of_scopes("a.scope_id", wanted) if of_scopes else _of_agents("a.agent_id", wanted)
    if wanted.since is not None:
        where.add("a.at >= ?", to_ms(wanted.since))
    if wanted.traces is not None:  # entries of accounts have no scope
        where.find(
            f"(a.scope_id IN ({_NAMED}) OR ({OF_ACCOUNTS}) OR ({OF_FACTS}))",
            _names(wanted.traces.scopes),
            json_array(whole_accounts(wanted.traces)),
            json_array(wanted.traces.facts),
        )
    return where


def _history(wanted: Selection) -> Where:
    """Limit versions. Time is ignored: the place of a version depends on earlier ones."""
    where = _of_scopes("h.scope_id", wanted)
    if wanted.traces is not None:
        where.find(
            f"(h.scope_id IN ({_NAMED}) OR ({OF_FACTS}))",
            _names(wanted.traces.scopes),
            json_array(wanted.traces.facts),
        )
    return where


def _never_changed(wanted: Selection) -> Where:
    return _of_traced_scopes("f.scope_id", wanted).add(
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
    return StoredAgent(**msgspec.structs.asdict(agent_from(row)), deleted=bool(row[AGENTS.end]))


def _user(connection: sqlite3.Connection, row: Row) -> StoredUser:
    return stored_user_from(row)


def _session(connection: sqlite3.Connection, row: Row) -> StoredSession:
    fields = msgspec.structs.asdict(session_from(connection, row))
    return StoredSession(**fields, last_memory_message_id=row[SESSIONS.end])


def _message(connection: sqlite3.Connection, row: Row) -> Message:
    message = message_from(row)
    return (
        StoredMessage(**msgspec.structs.asdict(message), forgotten=True)
        if row[MESSAGES.end]
        else message
    )


def _policy(connection: sqlite3.Connection, row: Row) -> Policy:
    _check_scope(*row[:3])
    return codec.policy_from(row)


def _consolidation(connection: sqlite3.Connection, row: Row) -> Consolidation:
    pending = connection.execute(
        "SELECT r.id FROM reflections r JOIN consolidations c USING (scope_id)"
        " WHERE c.id = ? AND r.absorbed = 0 ORDER BY r.formed_at, r.place, r.id",
        (row[3],),
    )
    found = codec.consolidation_from(row, [reflection_id for (reflection_id,) in pending])
    _check_ids(found.absorbed_ids)
    _check_scope(*row[:3])
    return found


def _reflection(connection: sqlite3.Connection, row: Row) -> Reflection:
    found = codec.reflection_from(row)
    _check_ids((*found.source_message_ids, *found.propagated_from, *found.related_users))
    _check_scope(*row[:3])
    return found


def _fact(connection: sqlite3.Connection, row: Row) -> Fact:
    fact = codec.fact_from(row)
    _check_ids((*fact.source_message_ids, *fact.related_users))
    _check_scope(*row[:3])
    return fact


def _held_item(connection: sqlite3.Connection, row: Row) -> Held:
    found = codec.held_from(row)
    _check_ids(found.source_message_ids)
    _check_scope(*row[:3])
    return found


def _formation(connection: sqlite3.Connection, row: Row) -> Formation:
    return formation_from(connection, row)


def _usage_entry(connection: sqlite3.Connection, row: Row) -> UsageEntry:
    id, at, agent_id, work, calls = row[:5]
    return UsageEntry(
        id=id,
        at=codec.time(at),
        agent_id=agent_id,
        work=work,
        calls=calls_from(decode_calls(calls)),
    )


def _audit_entry(connection: sqlite3.Connection, row: Row) -> StoredEntry:
    return stored_entry_from(row)


def _version(connection: sqlite3.Connection, row: Row) -> HistoryEntry:
    entry = history_from(row)
    _check_ids(entry.absorbed_ids)
    return entry


def _only_version(connection: sqlite3.Connection, row: Row) -> StoredVersion:
    return place_version(only_version(connection, _fact(connection, row)), 0)


@lru_cache(maxsize=1024)
def _check_scope(kind: str, agent_id: str, owner: str) -> None:
    """Raise an error for fields without an owner."""
    codec.scope_of(kind, agent_id, owner)


def _check_ids(ids: tuple[Any, ...]) -> None:
    if ids and not all(isinstance(each, str) for each in ids):
        raise ValueError("list of IDs has an invalid item")


# -- the table -------------------------------------------------------------------------------------


SOURCES: dict[RecordKind, Source] = {
    RecordKind.AGENT: Source(
        table="agents",
        order=("agents.id",),
        number=None,
        select=codec.select_more(AGENT, "deleted", "id", "''"),
        narrow=_agents,
        decode=_agent,
        long=AGENTS.places("persona"),
    ),
    RecordKind.USER: Source(
        table="users",
        order=("users.id",),
        number=None,
        select=codec.select_more(STORED_USER, "id", "''"),
        narrow=_users,
        decode=_user,
        long=(),
    ),
    RecordKind.SESSION: Source(
        table="sessions s",
        order=("s.id",),
        number=None,
        select=codec.select_more(SESSION, "last_memory_message_id", "id", "''"),
        narrow=_sessions,
        decode=_session,
        long=(),
    ),
    RecordKind.MESSAGE: Source(
        table="messages m",
        order=("m.session_id", "m.id"),
        number=None,
        select=codec.select_more(
            MESSAGE, "m.id IN (SELECT id FROM forgotten_messages)", "m.id", "''"
        ),
        narrow=_messages,
        decode=_message,
        long=MESSAGES.places("content", "tool_calls"),
    ),
    RecordKind.POLICY: Source(
        table="policies p",
        joined="scopes s CROSS JOIN ",
        order=("s.agent_id", "s.kind", "s.owner"),
        number="p.scope_id",
        select=codec.select_more(codec.POLICY, "p.id", "s.agent_id"),
        narrow=_policies,
        decode=_policy,
        long=codec.POLICIES.places("memory_instructions", "consolidation_instructions"),
    ),
    RecordKind.CONSOLIDATION: Source(
        table="consolidations c",
        order=("c.id",),
        number="c.scope_id",
        select=codec.select_more(codec.CONSOLIDATION, "c.id", "s.agent_id"),
        narrow=_consolidations,
        decode=_consolidation,
        long=codec.TEXTS.places("consolidated_content"),
    ),
    RecordKind.REFLECTION: Source(
        table="reflections r",
        order=("r.id",),
        number="r.reflection_no",
        select=codec.select_more(codec.REFLECTION, "r.id", "s.agent_id"),
        narrow=_reflections,
        decode=_reflection,
        long=codec.REFLECTIONS.places("content"),
    ),
    RecordKind.FACT: Source(
        table="facts f",
        order=("f.id",),
        number="f.fact_no",
        select=codec.select_more(codec.FACT, "f.id", "s.agent_id"),
        narrow=_facts,
        decode=_fact,
        long=codec.FACTS.places("content", "previous_content", "quote"),
    ),
    RecordKind.HELD: Source(
        table="held e",
        order=("e.id",),
        number="e.held_no",
        select=codec.select_more(codec.HELD, "e.id", "s.agent_id"),
        narrow=_held,
        decode=_held_item,
        long=codec.HELD_ITEMS.places("content", "quote", "reasons"),
    ),
    RecordKind.FORMATION: Source(
        table="formations",
        order=("formations.id",),
        number=None,
        select=f"SELECT {COLUMNS}, changes, id, agent_id FROM formations",
        narrow=_formations,
        decode=_formation,
        long=(13, 14, 15, 16, 19),
    ),
    RecordKind.USAGE: Source(
        table="usage_entries u",
        order=("u.id",),
        number=None,
        select="SELECT u.id, u.at, u.agent_id, u.work, u.calls, u.id, u.agent_id"
        " FROM usage_entries u",
        narrow=_usage,
        decode=_usage_entry,
        long=(4,),
    ),
    RecordKind.AUDIT: Source(
        table="audit a",
        order=("a.id",),
        number="a.audit_no",
        select=codec.select_more(STORED, "a.id", "a.agent_id"),
        narrow=_audit,
        decode=_audit_entry,
        long=ENTRIES.places("before", "after"),
    ),
    RecordKind.HISTORY: Source(
        table="history h",
        order=("h.target_id",),
        number="h.history_no",
        select=codec.select_more(HISTORY, "h.id", "s.agent_id"),
        narrow=_history,
        decode=_version,
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
UNWRITTEN = SOURCES[RecordKind.FACT]._replace(narrow=_never_changed, decode=_only_version)
