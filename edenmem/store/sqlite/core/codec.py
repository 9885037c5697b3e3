"""Conversion of rows to models and back: times as milliseconds, lists as JSON, IDs as text."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, overload

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.ids import as_utc
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FixedSentence,
    Held,
    Policy,
    Reflection,
    ScopeSummary,
)
from edenmem.models.scope import Scope, ScopeKind

Row = tuple[Any, ...]

#: Errors that decoding a damaged row can raise.
UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, ScopeError, msgspec.MsgspecError)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@overload
def to_ms(moment: datetime) -> int: ...
@overload
def to_ms(moment: None) -> None: ...
@overload
def to_ms(moment: datetime | None) -> int | None: ...
def to_ms(moment: datetime | None) -> int | None:
    """Return whole milliseconds since 1970."""
    return None if moment is None else (as_utc(moment) - _EPOCH) // _MILLISECOND


#: Earlier than all stored times.
EVER = -(2**62)


def select_more(select: str, *columns: str) -> str:
    """Return the statement with more columns at the end of each row."""
    return select.replace(" FROM ", f", {', '.join(columns)} FROM ", 1)


def day_of(column: str) -> str:
    """Return an SQL expression for the UTC day of a column of milliseconds."""
    return f"strftime('%Y-%m-%d', {column} / 1000, 'unixepoch')"


def time(ms: int) -> datetime:
    """Convert a column to a time."""
    return _EPOCH + ms * _MILLISECOND


def optional_time(ms: int | None) -> datetime | None:
    """Convert a column to a time, if it has a value."""
    return None if ms is None else _EPOCH + ms * _MILLISECOND


def to_list(items: Sequence[str]) -> str | None:
    """Encode a JSON array; None for an empty list."""
    if not items:
        return None
    import json  # loaded on first use: most commands read no lists

    return json.dumps(list(items))


def from_list(column: str | None) -> tuple[str, ...]:
    """Decode the items of a JSON array."""
    return _decode(column) if column else ()


def to_versions(column: str | None) -> tuple[int, ...]:
    """Decode the numbers of a JSON array."""
    return _decode(column) if column else ()


def _decode(column: str) -> tuple[Any, ...]:
    import json

    return tuple(json.loads(column))


def optional_bool(column: int | None) -> bool | None:
    """Convert a column to a truth value, if it has one."""
    return None if column is None else bool(column)


def scope_of(kind: str, agent_id: str, owner: str) -> Scope:
    """Return the scope of a row of ``scopes``."""
    return Scope(ScopeKind(kind), agent_id, owner)


@lru_cache(maxsize=64)
def _owner_fields(kind: str, agent_id: str, owner: str) -> Mapping[str, Any]:
    fields: dict[str, Any] = {"scope": ScopeKind(kind), "agent_id": agent_id}
    if kind == "user":
        fields["user_id"] = owner
    elif kind == "group":
        fields["group_id"] = owner
    elif kind == "shard":
        fields["shard"] = owner
    elif kind == "session":
        fields["session_id"] = owner
    return fields


_SCOPE = "s.kind, s.agent_id, s.owner"

_FACT = (
    f"SELECT {_SCOPE}, f.session_id, f.id, f.content, f.hash, f.formed_at, f.source_message_ids,"
    " f.version, f.previous_content, f.updated_at, f.access_count, f.last_accessed_at, f.private,"
    " f.formation_id, nullif(m.name, ''), f.related_users, f.quote, f.unconfirmed,"
    " f.said_at, f.edited_at, {vector}"
    " FROM facts f JOIN scopes s USING (scope_id)"
    " LEFT JOIN embedding_models m USING (model_id)"
)
#: Start of a query for facts; the table is ``f``.
FACT = _FACT.replace("{vector}", "NULL")
FACT_WITH_VECTOR = _FACT.replace("{vector}", "v.vector") + " LEFT JOIN vectors v USING (fact_no)"


def fact_from(row: Row) -> Fact:
    """Decode a row of `FACT` or `FACT_WITH_VECTOR`."""
    owner = _owner_fields(*row[:3])
    if row[3] is not None:
        owner = {**owner, "session_id": row[3]}
    return Fact(
        **owner,
        id=row[4],
        content=row[5],
        hash=row[6],
        formed_at=time(row[7]),
        source_message_ids=from_list(row[8]),
        version=row[9],
        previous_content=row[10],
        updated_at=optional_time(row[11]),
        access_count=row[12],
        last_accessed_at=optional_time(row[13]),
        private=bool(row[14]),
        formation_id=row[15],
        embedding_model=row[16],
        related_users=from_list(row[17]),
        quote=row[18],
        unconfirmed=row[19],
        said_at=optional_time(row[20]),
        edited_at=optional_time(row[21]),
        embedding=row[22],
    )


#: Start of a query for reflections; the table is ``r``.
REFLECTION = (
    f"SELECT {_SCOPE}, r.session_id, r.id, r.content, r.formed_at, r.source_message_ids,"
    " r.version, r.updated_at, r.absorbed, r.absorbed_at, r.consolidated_into, r.private,"
    " r.formation_id, r.propagated_from, r.related_users, r.place, r.said_at, r.unconfirmed"
    " FROM reflections r JOIN scopes s USING (scope_id)"
)


def reflection_from(row: Row) -> Reflection:
    """Decode a row of `REFLECTION`."""
    owner = _owner_fields(*row[:3])
    if row[3] is not None:
        owner = {**owner, "session_id": row[3]}
    return Reflection(
        **owner,
        id=row[4],
        content=row[5],
        formed_at=time(row[6]),
        source_message_ids=from_list(row[7]),
        version=row[8],
        updated_at=optional_time(row[9]),
        absorbed=bool(row[10]),
        absorbed_at=optional_time(row[11]),
        consolidated_into=row[12],
        private=bool(row[13]),
        formation_id=row[14],
        propagated_from=from_list(row[15]),
        related_users=from_list(row[16]),
        place=row[17],
        said_at=optional_time(row[18]),
        unconfirmed=row[19],
    )


#: Start of a query for consolidated texts; the table is ``c``.
CONSOLIDATION = (
    f"SELECT {_SCOPE}, c.id, c.content, c.version, c.word_limit, c.absorbed_ids,"
    " c.last_consolidated_at, c.updated_at, c.unpropagated, c.fixed"
    " FROM consolidations c JOIN scopes s USING (scope_id)"
)


def fixed_column(text: Consolidation) -> str | None:
    """Encode the fixed sentences of a text; None without any."""
    return msgspec.json.encode(text.fixed).decode() if text.fixed else None


def consolidation_from(row: Row, pending: Sequence[str]) -> Consolidation:
    """Build a text from a row of `CONSOLIDATION` and the IDs in the scope's buffer."""
    return Consolidation(
        **_owner_fields(*row[:3]),
        id=row[3],
        consolidated_content=row[4],
        version=row[5],
        word_limit=row[6],
        unabsorbed_ids=tuple(pending),
        absorbed_ids=from_list(row[7]),
        last_consolidated_at=optional_time(row[8]),
        updated_at=optional_time(row[9]),
        unpropagated_versions=to_versions(row[10]),
        fixed=msgspec.json.decode(row[11], type=tuple[FixedSentence, ...]) if row[11] else (),
    )


#: Start of a query for held items; the table is ``e``.
HELD = (
    f"SELECT {_SCOPE}, e.session_id, e.id, e.kind, e.content, e.quote, e.reasons,"
    " e.source_message_ids, e.private, e.formation_id, e.held_at"
    " FROM held e JOIN scopes s USING (scope_id)"
)


def held_from(row: Row) -> Held:
    """Decode a row of `HELD`."""
    return Held(
        **{**_owner_fields(*row[:3]), "session_id": row[3]},
        id=row[4],
        kind=row[5],
        content=row[6],
        quote=row[7],
        reasons=row[8],
        source_message_ids=from_list(row[9]),
        private=bool(row[10]),
        formation_id=row[11],
        held_at=time(row[12]),
    )


#: Start of a query for policies; the table is ``p``.
POLICY = (
    f"SELECT {_SCOPE}, p.id, p.memory_instructions, p.consolidation_instructions,"
    " p.consolidate_at, p.word_limit, p.fact_buffer_max, p.fast_model, p.slow_model, p.active,"
    " p.private, p.propagate, p.version, p.updated_at, p.orders"
    " FROM policies p JOIN scopes s USING (scope_id)"
)


def policy_from(row: Row) -> Policy:
    """Decode a row of `POLICY`."""
    return Policy(
        **_owner_fields(*row[:3]),
        id=row[3],
        memory_instructions=row[4],
        consolidation_instructions=row[5],
        consolidate_at=row[6],
        word_limit=row[7],
        fact_buffer_max=row[8],
        fast_model=row[9],
        slow_model=row[10],
        active=bool(row[11]),
        private=bool(row[12]),
        propagate=optional_bool(row[13]),
        version=row[14],
        updated_at=optional_time(row[15]),
        orders=optional_bool(row[16]),
    )


#: Start of a query for summaries of scopes; the tables are ``s``, ``c`` and ``p``.
SUMMARY = (
    "SELECT s.agent_id, s.kind, s.owner, s.facts, s.pending, coalesce(c.version, 0),"
    " coalesce(c.words, 0), coalesce(p.active, 1), p.consolidate_at, p.word_limit,"
    " c.last_consolidated_at, s.updated_at FROM scopes s"
    " LEFT JOIN consolidations c USING (scope_id) LEFT JOIN policies p USING (scope_id)"
)


def summary_from(row: Row) -> ScopeSummary:
    """Decode a row of `SUMMARY`."""
    return ScopeSummary(
        scope=scope_of(row[1], row[0], row[2]),
        facts=row[3],
        pending=row[4],
        version=row[5],
        words=row[6],
        active=bool(row[7]),
        consolidate_at=row[8],
        word_limit=row[9],
        last_consolidated_at=optional_time(row[10]),
        updated_at=optional_time(row[11]),
    )
