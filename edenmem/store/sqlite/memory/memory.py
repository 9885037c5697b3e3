"""Current memory: facts, reflections, texts, policies, and the overview of scopes."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.models.integrity import Finding
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FailedDrafts,
    Held,
    HeldCount,
    Policy,
    Reflection,
    ScopeSummary,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, optional_time, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, Part, json_array

#: See `Fact.dated_at`.
_DATED_AT = "coalesce(f.said_at, f.formed_at)"
#: Of facts that have not expired at a time.
LIVE = "(f.expires_at IS NULL OR f.expires_at > ?)"


def narrowing(filter: FactFilter) -> tuple[str, list[Any]]:
    """Return the conditions of a filter, without its scopes, on ``f``, and their parameters."""
    conditions, values = "", list[Any]()
    for condition, value in (
        (f"{_DATED_AT} >= ?", to_ms(filter.since)),
        (f"{_DATED_AT} < ?", to_ms(filter.until)),
        ("f.session_id = ?", filter.session_id),
        (LIVE, to_ms(filter.live_at)),
        ("f.expires_at <= ?", to_ms(filter.expired_at)),
        ("f.recent_at < ?", to_ms(filter.recent_before)),
        ("f.key = ?", filter.key),
        ("f.unconfirmed > ?", "" if filter.unconfirmed else None),
        *(("? IN (SELECT value FROM json_each(f.tags))", tag) for tag in filter.tags),
    ):
        if value is not None:
            conditions += f" AND {condition}"
            values.append(value)
    return conditions, values


class Memory(Part):
    """See `edenmem.store.protocol.memory.Memory`."""

    # -- facts -------------------------------------------------------------------------------------

    def facts(
        self, filter: FactFilter, *, limit: int | None = None, with_vectors: bool = False
    ) -> Iterator[Fact]:
        with self._db.reading() as connection:
            numbers = scopes.numbers_of(connection, filter.scopes).values()
        select = codec.FACT_WITH_VECTOR if with_vectors else codec.FACT
        conditions, values = narrowing(filter)
        streams = [
            self._newest_first(
                select, ("f", "recent_at"), f"f.scope_id = ?{conditions}", [number, *values], limit
            )
            for number in numbers
        ]
        facts = heapq.merge(
            *(map(codec.fact_from, stream) for stream in streams),
            key=lambda fact: (-to_ms(fact.recent_at), fact.id),
        )
        return itertools.islice(facts, limit)

    def _newest_first(
        self,
        select: str,
        order: tuple[str, str],
        where: str,
        values: Sequence[Any],
        limit: int | None,
    ) -> Iterator[Row]:
        """Yield rows in batches, newest first, then by ID.

        Each batch continues after the previous one: first the rest of the same millisecond, which a
        bulk import may fill with any number of rows, then older rows.
        """
        table, column = order
        moment, row_id = f"{table}.{column}", f"{table}.id"
        left = limit
        last: tuple[int, str] | None = None
        # The keys are appended to the selected columns, as the last two of the row.
        select = codec.select_more(select, moment, row_id)
        tail = f" ORDER BY {moment} DESC, {row_id} LIMIT ?"
        while left is None or left > 0:
            size = BATCH if left is None else min(BATCH, left)
            rows: list[Row] = []
            with self._db.reading() as connection:
                if last is None:
                    rows = connection.execute(
                        f"{select} WHERE {where}{tail}", (*values, size)
                    ).fetchall()
                else:
                    rows = connection.execute(
                        f"{select} WHERE {where} AND {moment} = ? AND {row_id} > ?{tail}",
                        (*values, *last, size),
                    ).fetchall()
                    rows += connection.execute(
                        f"{select} WHERE {where} AND {moment} < ?{tail}",
                        (*values, last[0], size - len(rows)),
                    ).fetchall()
            yield from rows
            if len(rows) < size:
                return
            last = rows[-1][-2:]
            left = None if left is None else left - size

    def recent_facts(
        self, scopes_: Sequence[Scope], *, since: datetime, limit: int, live_at: datetime
    ) -> list[Fact]:
        newest: list[tuple[int, str, int]] = []
        with self._db.reading() as connection:
            # Only the index, since most of these rows are not among the newest of all scopes.
            for number in scopes.numbers_of(connection, scopes_).values():
                newest += connection.execute(
                    "SELECT -recent_at, id, fact_no FROM facts f WHERE scope_id = ?"
                    f" AND recent_at >= ? AND {LIVE} ORDER BY recent_at DESC, id LIMIT ?",
                    (number, to_ms(since), to_ms(live_at), max(0, limit)),
                )
            newest = sorted(newest)[: max(0, limit)]
            rows = connection.execute(
                f"{codec.FACT} WHERE f.fact_no {AMONG}", (json_array(no for *_, no in newest),)
            ).fetchall()
        facts = {fact.id: fact for fact in map(codec.fact_from, rows)}
        return [facts[fact_id] for _, fact_id, _ in newest]

    def fact(self, fact_id: str, *, with_vector: bool = False) -> Fact | None:
        select = codec.FACT_WITH_VECTOR if with_vector else codec.FACT
        row = self._fetch_one(f"{select} WHERE f.id = ?", (fact_id,))
        return codec.fact_from(row) if row else None

    def facts_by_ids(
        self, scopes_: Sequence[Scope], fact_ids: Sequence[str], *, with_vectors: bool = False
    ) -> dict[str, Fact]:
        select = codec.FACT_WITH_VECTOR if with_vectors else codec.FACT
        with self._db.reading() as connection:
            numbers = set(scopes.numbers_of(connection, scopes_).values())
            rows = connection.execute(
                f"{select} WHERE f.id {AMONG} AND f.scope_id {AMONG}",
                (json_array(fact_ids), json_array(numbers)),
            ).fetchall()
        return {fact.id: fact for fact in map(codec.fact_from, rows)}

    def facts_by_hashes(self, scope: Scope, hashes: Sequence[str]) -> dict[str, Fact]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{codec.FACT} WHERE f.scope_id = ? AND f.hash {AMONG}",
                (scopes.number_of(connection, scope), json_array(hashes)),
            ).fetchall()
        return {fact.hash: fact for fact in map(codec.fact_from, rows)}

    def expired_facts(
        self, at: datetime, *, agent_ids: Sequence[str] | None = None, limit: int
    ) -> list[Fact]:
        of_agents = "" if agent_ids is None else f" AND s.agent_id {AMONG}"
        rows = self._fetch(
            f"{codec.FACT} WHERE f.expires_at <= ?{of_agents} ORDER BY f.expires_at, f.id LIMIT ?",
            (to_ms(at), *(() if agent_ids is None else (json_array(agent_ids),)), limit),
        )
        return [codec.fact_from(row) for row in rows]

    def duplicate_facts(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        return iter(())

    # -- reflections -------------------------------------------------------------------------------

    def reflections(
        self,
        scopes_: Sequence[Scope],
        *,
        absorbed: bool | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> Iterator[Reflection]:
        with self._db.reading() as connection:
            numbers = scopes.numbers_of(connection, scopes_).values()
        where, values = "r.scope_id = ?", list[Any]()
        if absorbed is not None:
            where += f" AND r.absorbed = {int(absorbed)}"
        if since is not None:
            where += " AND coalesce(r.said_at, r.formed_at) >= ?"
            values.append(to_ms(since))
        if before is not None:
            where += " AND coalesce(r.said_at, r.formed_at) < ?"
            values.append(to_ms(before))
        streams = [
            self._newest_first(
                codec.REFLECTION, ("r", "formed_at"), where, [number, *values], limit
            )
            for number in numbers
        ]
        reflections = heapq.merge(
            *(map(codec.reflection_from, stream) for stream in streams),
            key=lambda reflection: (-to_ms(reflection.formed_at), reflection.id),
        )
        return itertools.islice(reflections, limit)

    def held(
        self, scopes_: Sequence[Scope] | None, *, agent_id: str | None = None
    ) -> Iterator[Held]:
        where, owners = "coalesce(?, s.agent_id) = s.agent_id", list[object]([agent_id])
        if scopes_ is not None:
            where = "e.scope_id = ?"
            with self._db.reading() as connection:
                owners = list(scopes.numbers_of(connection, scopes_).values())
        streams = (
            self._newest_first(codec.HELD, ("e", "held_at"), where, [owner], None)
            for owner in owners
        )
        return heapq.merge(
            *(map(codec.held_from, stream) for stream in streams),
            key=lambda held: (-to_ms(held.held_at), held.id),
        )

    def count_held(self, *, agent_id: str | None = None) -> HeldCount:
        number, oldest = self._fetch_one(
            "SELECT count(*), min(held_at) FROM held JOIN scopes USING (scope_id)"
            " WHERE ?1 IS NULL OR agent_id = ?1",
            (agent_id,),
        )
        return HeldCount(number=number, oldest=optional_time(oldest))

    def reflection(self, reflection_id: str) -> Reflection | None:
        row = self._fetch_one(f"{codec.REFLECTION} WHERE r.id = ?", (reflection_id,))
        return codec.reflection_from(row) if row else None

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        rows = self._fetch(
            f"{codec.REFLECTION} WHERE r.id IN (SELECT value FROM json_each(?))",
            (json_array(reflection_ids),),
        )
        return {found.id: found for found in map(codec.reflection_from, rows)}

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        rows = self._fetch(
            f"{codec.REFLECTION} WHERE r.propagated_from IS NOT NULL AND EXISTS (SELECT 1"
            f" FROM json_each(r.propagated_from) AS parent WHERE parent.value {AMONG})",
            (json_array(reflection_ids),),
        )
        return [codec.reflection_from(row) for row in rows]

    def pending(self, scope: Scope) -> list[Reflection]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{codec.REFLECTION} WHERE r.scope_id = ? AND r.absorbed = 0"
                " ORDER BY r.formed_at, r.place, r.id",
                (scopes.number_of(connection, scope),),
            ).fetchall()
        return [codec.reflection_from(row) for row in rows]

    def buffers(self, scopes_: Sequence[Scope]) -> dict[Scope, tuple[str, ...]]:
        with self._db.reading() as connection:
            return {
                scope: tuple(
                    reflection_id
                    for (reflection_id,) in connection.execute(
                        "SELECT id FROM reflections WHERE scope_id = ? AND absorbed = 0"
                        " ORDER BY formed_at, place, id",
                        (number,),
                    )
                )
                for scope, number in scopes.numbers_of(connection, scopes_).items()
            }

    # -- texts and policies ------------------------------------------------------------------------

    def consolidations(self, scopes_: Sequence[Scope]) -> dict[Scope, Consolidation]:
        with self._db.reading() as connection:
            numbers = scopes.numbers_of(connection, scopes_)
            among = (json_array(numbers.values()),)
            rows = connection.execute(f"{codec.CONSOLIDATION} WHERE c.scope_id {AMONG}", among)
            found = {codec.scope_of(*row[:3]): row for row in rows}
            pending: dict[int, list[str]] = {}
            for number, reflection_id in connection.execute(
                f"SELECT scope_id, id FROM reflections WHERE scope_id {AMONG} AND absorbed = 0"
                " ORDER BY formed_at, place, id",
                among,
            ):
                pending.setdefault(number, []).append(reflection_id)
        return {
            scope: codec.consolidation_from(found[scope], pending.get(number, ()))
            for scope, number in numbers.items()
            if scope in found
        }

    def failed_drafts(self, scopes_: Sequence[Scope]) -> dict[Scope, FailedDrafts]:
        with self._db.reading() as connection:
            numbers = scopes.numbers_of(connection, scopes_)
            rows = connection.execute(
                "SELECT scope_id, failed_drafts FROM consolidations"
                f" WHERE failed_drafts IS NOT NULL AND scope_id {AMONG}",
                (json_array(numbers.values()),),
            )
            found = {number: msgspec.json.decode(row, type=FailedDrafts) for number, row in rows}
        return {scope: found[number] for scope, number in numbers.items() if number in found}

    def policies(self, scopes_: Sequence[Scope]) -> dict[Scope, Policy]:
        with self._db.reading() as connection:
            numbers = scopes.numbers_of(connection, scopes_)
            rows = connection.execute(
                f"{codec.POLICY} WHERE p.scope_id {AMONG}", (json_array(numbers.values()),)
            )
            found = {codec.scope_of(*row[:3]): codec.policy_from(row) for row in rows}
        return {scope: found[scope] for scope in numbers if scope in found}

    def shards(self, agent_id: str) -> list[Policy]:
        rows = self._fetch(
            f"{codec.POLICY} WHERE s.agent_id = ? AND s.kind = 'shard' ORDER BY s.owner",
            (agent_id,),
        )
        return [codec.policy_from(row) for row in rows]

    # -- scopes ------------------------------------------------------------------------------------

    def revisions(self, scopes_: Sequence[Scope]) -> dict[Scope, int]:
        found = dict.fromkeys(scopes_, 0)
        with self._db.reading() as connection:
            for scope, number in scopes.numbers_of(connection, scopes_).items():
                (found[scope],) = connection.execute(
                    "SELECT revision FROM scopes WHERE scope_id = ?", (number,)
                ).fetchone()
        return found

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        where, values = "", list[Any]()
        if agent_id is not None:
            where += " AND s.agent_id = ?"
            values.append(agent_id)
        if kinds:
            where += f" AND s.kind {AMONG}"
            values.append(json_array(kind.value for kind in kinds))
        if user_ids is not None:
            where += f" AND s.kind = 'user' AND s.owner {AMONG}"
            values.append(json_array(user_ids))
        if min_pending > 0:
            where += " AND s.pending >= ?"
            values.append(min_pending)
        return self._summaries(where, values)

    def _summaries(self, where: str, values: Sequence[Any]) -> Iterator[ScopeSummary]:
        select = (
            f"{codec.SUMMARY} WHERE (s.agent_id, s.kind, s.owner) > (?, ?, ?) AND (s.facts > 0"
            " OR s.reflections > 0 OR c.version > 0 OR p.scope_id IS NOT NULL)"
            f"{where} ORDER BY s.agent_id, s.kind, s.owner LIMIT {BATCH}"
        )
        last: Row = ("", "", "")
        while True:
            rows = self._fetch(select, (*last, *values))
            yield from map(codec.summary_from, rows)
            if len(rows) < BATCH:
                return
            last = rows[-1][:3]

    def scopes_of(self, agent_id: str) -> list[Scope]:
        rows = self._fetch(
            "SELECT kind, agent_id, owner FROM scopes WHERE agent_id = ?", (agent_id,)
        )
        return sorted(codec.scope_of(*row) for row in rows)

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        where, values = ("", ()) if agent_id is None else (" AND s.agent_id = ?", (agent_id,))
        rows = self._fetch(
            "SELECT s.kind, s.agent_id, s.owner FROM consolidations c"
            f" JOIN scopes s USING (scope_id) WHERE c.unpropagated IS NOT NULL{where}",
            values,
        )
        return sorted(
            (codec.scope_of(*row) for row in rows),
            key=lambda scope: (scope.agent_id, scope.kind, scope.owner),
        )


def consolidation_of(connection: sqlite3.Connection, number: int) -> Consolidation | None:
    """Return a scope's text and buffer."""
    row = connection.execute(f"{codec.CONSOLIDATION} WHERE c.scope_id = ?", (number,)).fetchone()
    if row is None:
        return None
    pending = connection.execute(
        "SELECT id FROM reflections WHERE scope_id = ? AND absorbed = 0"
        " ORDER BY formed_at, place, id",
        (number,),
    )
    return codec.consolidation_from(row, [reflection_id for (reflection_id,) in pending])
