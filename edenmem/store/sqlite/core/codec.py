"""Conversion of rows to models and back: times as milliseconds, lists as JSON, IDs as text."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

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
from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind

Row = tuple[Any, ...]
_ModelT = TypeVar("_ModelT")

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


_ENCODER = msgspec.json.Encoder()
_LIST = msgspec.json.Decoder(tuple[str, ...])


def to_list(items: Sequence[str]) -> str | None:
    """Encode a JSON array; None for an empty list."""
    return _ENCODER.encode(items).decode() if items else None


def from_list(column: str | None) -> tuple[str, ...]:
    """Decode the items of a JSON array."""
    return _LIST.decode(column) if column else ()


def optional_bool(column: int | None) -> bool | None:
    """Convert a column to a truth value, if it has one."""
    return None if column is None else bool(column)


def scope_of(kind: str, agent_id: str, owner: str) -> Scope:
    """Return the scope of a row of ``scopes``."""
    return Scope(ScopeKind(kind), agent_id, owner)


@lru_cache(maxsize=64)
def _owner_fields(kind: str, agent_id: str, owner: str) -> dict[str, Any]:
    """Return the fields of a scope; raises an error without an owner."""
    scope = scope_of(kind, agent_id, owner)
    named = OWNER_FIELD[scope.kind]
    return {"scope": scope.kind, "agent_id": agent_id, **({named: owner} if named else {})}


# -- tables ----------------------------------------------------------------------------------------


#: The conversions of a column to a value and back; None keeps the value.
Conversions = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def as_json(type: Any, empty: Any = ()) -> Conversions:
    """Return the conversions of a column with JSON of a type, or NULL for an empty value."""

    decode, encode = msgspec.json.Decoder(type).decode, _ENCODER.encode

    def read(column: str | bytes | None) -> Any:
        return decode(column) if column else empty

    def write(value: Any) -> str | None:
        return None if value == empty else encode(value).decode()

    return read, write


class Table(Generic[_ModelT]):
    """The columns of a table, declared once: selects, decoders and inserts are made from them.

    The arguments name the columns in the order of a row, separated by spaces. A column whose field
    has another name is ``field=column``.

    Attributes:
        qualified: The columns for a SELECT.
        end: The place after the last column in a row.
        values: Encodes the fields of an item for `insert`.

    Args:
        model: The type of the items.
        name: The table.
        alias: Its name in a SELECT.
        plain: Columns that are stored as they are.
        times: Columns with times, as milliseconds.
        flags: Columns with truth values.
        optional_flags: Columns with truth values or NULL.
        lists: Columns with lists of texts, as JSON; NULL if empty.
        others: Columns with their own conversions.
        start: The place of the first column in a row.
        given: The field that `make` takes from its caller instead of the row.
    """

    def __init__(
        self,
        model: type[_ModelT],
        name: str,
        alias: str,
        plain: str,
        *,
        times: str = "",
        flags: str = "",
        optional_flags: str = "",
        lists: str = "",
        others: Mapping[str, Conversions] = MappingProxyType({}),
        start: int = 3,
        given: str = "",
    ) -> None:
        self.name = name
        self._model = model
        self._start = start
        self._given = given
        self._columns: dict[str, str] = {}
        self._writes: dict[str, Callable[[Any], Any] | None] = {}
        self._reads: list[Callable[[Any], Any] | None] = []
        for names, (read, write) in (
            (plain, (None, None)),
            (times, (optional_time, to_ms)),
            (flags, (bool, None)),
            (optional_flags, (optional_bool, None)),
            (lists, (from_list, to_list)),
            *others.items(),
        ):
            for each in names.split():
                field, _, column = each.partition("=")
                self._columns[field] = column or field
                self._writes[field] = write
                self._reads.append(read)
        self.end = start + len(self._columns)
        self.values = self.encoder(*self._columns)
        self.qualified = ", ".join(f"{alias}.{each}" for each in self._columns.values())

    def places(self, *fields: str) -> tuple[int, ...]:
        """Return the places of fields in a row."""
        return tuple(self._start + list(self._columns).index(field) for field in fields)

    @cached_property
    def make(self) -> Callable[..., _ModelT]:
        """Return the function that makes an item of a row and of its other fields.

        It is compiled from the declaration, since reading rows is a large part of most commands.
        """
        names: dict[str, Any] = {"model": self._model}
        arguments = []
        for place, (field, read) in enumerate(zip(self._columns, self._reads, strict=True)):
            if field == self._given:
                continue
            value = f"row[{self._start + place}]"
            arguments.append(f"{field}=read_{field}({value})" if read else f"{field}={value}")
            names[f"read_{field}"] = read
        source = f"lambda row, **others: model({', '.join(arguments)}, **others)"
        made: Callable[..., _ModelT] = eval(source, names)  # noqa: S307 - made of constants
        return made

    def encoder(self, *fields: str) -> Callable[[object], list[Any]]:
        """Return a function that encodes these fields of an item."""
        get = attrgetter(*fields)
        writes = [
            (place, write) for place, field in enumerate(fields) if (write := self._writes[field])
        ]

        def encode(item: object) -> list[Any]:
            values = list(get(item))
            for place, write in writes:
                values[place] = write(values[place])
            return values

        return encode

    def insert(
        self, *more: str, otherwise: str = "", replace: str = "", keep: Sequence[str] = ()
    ) -> str:
        """Return the statement that inserts `values`, and then the values of ``more`` columns.

        Args:
            more: The names of other columns.
            otherwise: The action for a row that exists, such as "OR IGNORE ".
            replace: The key by which an existing row is replaced; assignments can be appended.
            keep: The columns that are not replaced.
        """
        columns = (*self._columns.values(), *more)
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT {otherwise}INTO {self.name} ({', '.join(columns)}) VALUES ({marks})"
        if not replace:
            return statement
        changed = (each for each in columns if each not in (replace, *keep))
        assigned = ", ".join(f"{each} = excluded.{each}" for each in changed)
        return f"{statement} ON CONFLICT ({replace}) DO UPDATE SET {assigned}"

    def assign(self, *fields: str) -> str:
        """Return the assignments that take the `values` of these fields."""
        return ", ".join(f"{self._columns[field]} = ?" for field in fields)


_OWNED = "SELECT s.kind, s.agent_id, s.owner, {} FROM {} JOIN scopes s USING (scope_id)"


# -- memory ----------------------------------------------------------------------------------------

FACTS = Table(
    Fact,
    "facts",
    "f",
    "session_id id content hash version"
    " previous_content access_count formation_id quote unconfirmed key",
    times="formed_at updated_at last_accessed_at said_at edited_at expires_at",
    flags="private",
    lists="source_message_ids related_users tags",
    others={
        "metadata": as_json(dict[str, str], {}),
        "value": as_json(dict[str, Any], None),
    },
    start=5,
    given="session_id",
)
_FACT = (
    _OWNED.format(f"nullif(m.name, ''), {{}}, {FACTS.qualified}", "facts f")
    + " LEFT JOIN embedding_models m USING (model_id)"
)
#: Start of a query for facts; the table is ``f``.
FACT = _FACT.format("NULL")
FACT_WITH_VECTOR = _FACT.format("v.vector") + " LEFT JOIN vectors v USING (fact_no)"


def fact_from(row: Row) -> Fact:
    """Decode a row of `FACT` or `FACT_WITH_VECTOR`."""
    owner = _owner_fields(*row[:3])
    if row[5] is not None:  # the source; the owner of the scope otherwise
        owner = {**owner, "session_id": row[5]}
    return FACTS.make(row, **owner, embedding_model=row[3], embedding=row[4])


REFLECTIONS = Table(
    Reflection,
    "reflections",
    "r",
    "session_id id content version consolidated_into formation_id place unconfirmed",
    times="formed_at updated_at absorbed_at said_at",
    flags="absorbed private",
    lists="source_message_ids propagated_from related_users",
    given="session_id",
)
#: Start of a query for reflections; the table is ``r``.
REFLECTION = _OWNED.format(REFLECTIONS.qualified, "reflections r")


def reflection_from(row: Row) -> Reflection:
    """Decode a row of `REFLECTION`."""
    owner = _owner_fields(*row[:3])
    if row[3] is not None and not owner.get("session_id"):  # a session owns its memory
        owner = {**owner, "session_id": row[3]}
    return REFLECTIONS.make(row, **owner)


TEXTS = Table(
    Consolidation,
    "consolidations",
    "c",
    "id consolidated_content=content version word_limit",
    times="last_consolidated_at updated_at",
    lists="absorbed_ids",
    others={
        "unpropagated_versions=unpropagated": as_json(tuple[int, ...]),
        "fixed": as_json(tuple[FixedSentence, ...]),
    },
)
#: Start of a query for consolidated texts; the table is ``c``.
CONSOLIDATION = _OWNED.format(TEXTS.qualified, "consolidations c")


def consolidation_from(row: Row, pending: Sequence[str]) -> Consolidation:
    """Build a text from a row of `CONSOLIDATION` and the IDs in the scope's buffer."""
    return TEXTS.make(row, **_owner_fields(*row[:3]), unabsorbed_ids=tuple(pending))


HELD_ITEMS = Table(
    Held,
    "held",
    "e",
    "session_id id kind content quote reasons formation_id",
    times="held_at said_at",
    flags="private",
    lists="source_message_ids",
    given="session_id",
)
#: Start of a query for held items; the table is ``e``.
HELD = _OWNED.format(HELD_ITEMS.qualified, "held e")


def held_from(row: Row) -> Held:
    """Decode a row of `HELD`."""
    return HELD_ITEMS.make(row, **{**_owner_fields(*row[:3]), "session_id": row[3]})


POLICIES = Table(
    Policy,
    "policies",
    "p",
    "id memory_instructions consolidation_instructions consolidate_at"
    " word_limit fact_buffer_max fast_model slow_model review version",
    times="updated_at",
    flags="active private",
    optional_flags="propagate orders",
)
#: Start of a query for policies; the table is ``p``.
POLICY = _OWNED.format(POLICIES.qualified, "policies p")


def policy_from(row: Row) -> Policy:
    """Decode a row of `POLICY`."""
    return POLICIES.make(row, **_owner_fields(*row[:3]))


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
