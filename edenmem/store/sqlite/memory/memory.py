"""Current memory: facts, reflections, texts, policies, and the overview of scopes."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

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
from edenmem.store.sqlite.core.codec import Row, from_list, optional_time, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, Part, json_array, where
from edenmem.store.sqlite.core.scopes import OF_SCOPE, OF_SCOPES, scope_keys

_T = TypeVar("_T")

#: Start of a query for texts, with the IDs of their buffers at the end of a row.
_TEXT_AND_BUFFER = codec.select_more(
    codec.CONSOLIDATION,
    "(SELECT json_group_array(id) FROM (SELECT id FROM reflections r WHERE r.absorbed = 0"
    " AND r.scope_id = c.scope_id ORDER BY r.formed_at, r.place, r.id))",
)

#: See `Fact.dated_at`.
_DATED_AT = "coalesce(f.said_at, f.formed_at)"
#: Of facts that have not expired at a time.
LIVE = "(f.expires_at IS NULL OR f.expires_at > ?)"


def narrowing(filter: FactFilter) -> tuple[str, list[Any]]:
    """Return the conditions of a filter, without its scopes, on ``f``, and their parameters."""
    return where(
        (f"{_DATED_AT} >= ?", to_ms(filter.since)),
        (f"{_DATED_AT} < ?", to_ms(filter.until)),
        ("f.session_id = ?", filter.session_id),
        (LIVE, to_ms(filter.live_at)),
        ("f.expires_at <= ?", to_ms(filter.expired_at)),
        ("f.recent_at < ?", to_ms(filter.recent_before)),
        ("f.key = ?", filter.key),
        ("f.unconfirmed > ?", "" if filter.unconfirmed else None),
        *(("? IN (SELECT value FROM json_each(f.tags))", tag) for tag in filter.tags),
    )


class Memory(Part):
    """See `edenmem.store.protocol.memory.Memory`."""

    # -- facts -------------------------------------------------------------------------------------

    def facts(
        self, filter: FactFilter, *, limit: int | None = None, with_vectors: bool = False
    ) -> Iterator[Fact]:
        select = codec.FACT_WITH_VECTOR if with_vectors else codec.FACT
        narrowed = narrowing(filter)
        return self._newest(codec.fact_from, select, "f.recent_at", filter.scopes, *narrowed, limit)

    def _newest(
        self,
        decode: Callable[[Row], _T],
        select: str,
        column: str,
        scopes_: Sequence[Scope],
        conditions: str = "",
        values: Sequence[Any] = (),
        limit: int | None = None,
    ) -> Iterator[_T]:
        """Yield what scopes have, newest first by a column with a time, then by ID."""
        with self._db.reading() as connection:
            numbers = scopes.numbers_of(connection, scopes_).values()
        of_scope = f"{column[0]}.scope_id = ?{conditions}"
        streams = (
            self._newest_first(select, column, of_scope, [number, *values], limit)
            for number in numbers
        )
        rows = heapq.merge(*streams, key=lambda row: (-row[-2], row[-1]))
        return map(decode, itertools.islice(rows, limit))

    def _newest_first(
        self,
        select: str,
        moment: str,
        conditions: str,
        values: Sequence[Any],
        limit: int | None = None,
    ) -> Iterator[Row]:
        """Yield rows in batches, newest first, then by ID.

        Each batch continues after the previous one: first the rest of the same millisecond, which a
        bulk import may fill with any number of rows, then older rows.
        """
        row_id, left = f"{moment[0]}.id", limit
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
                        f"{select} WHERE {conditions}{tail}", (*values, size)
                    ).fetchall()
                else:
                    rows = connection.execute(
                        f"{select} WHERE {conditions} AND {moment} = ? AND {row_id} > ?{tail}",
                        (*values, *last, size),
                    ).fetchall()
                    rows += connection.execute(
                        f"{select} WHERE {conditions} AND {moment} < ?{tail}",
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
        rows = self._fetch(
            f"{select} WHERE f.id {AMONG} AND f.scope_id {OF_SCOPES}",
            (json_array(fact_ids), scope_keys(*scopes_)),
        )
        return {fact.id: fact for fact in map(codec.fact_from, rows)}

    def facts_by_hashes(self, scope: Scope, hashes: Sequence[str]) -> dict[str, Fact]:
        rows = self._fetch(
            f"{codec.FACT} WHERE f.scope_id {OF_SCOPE} AND f.hash {AMONG}",
            (scope_keys(scope), json_array(hashes)),
        )
        return {fact.hash: fact for fact in map(codec.fact_from, rows)}

    def expired_facts(
        self, at: datetime, *, agent_ids: Sequence[str] | None = None, limit: int
    ) -> list[Fact]:
        among = None if agent_ids is None else json_array(agent_ids)
        conditions, values = where((f"s.agent_id {AMONG}", among))
        rows = self._fetch(
            f"{codec.FACT} WHERE f.expires_at <= ?{conditions} ORDER BY f.expires_at, f.id LIMIT ?",
            (to_ms(at), *values, limit),
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
        # A constant, since an index has only the pending ones.
        flag = "" if absorbed is None else f" AND r.absorbed = {int(absorbed)}"
        conditions, values = where(
            ("coalesce(r.said_at, r.formed_at) >= ?", to_ms(since)),
            ("coalesce(r.said_at, r.formed_at) < ?", to_ms(before)),
        )
        return self._newest(
            codec.reflection_from,
            codec.REFLECTION,
            "r.formed_at",
            scopes_,
            flag + conditions,
            values,
            limit,
        )

    def held(
        self, scopes_: Sequence[Scope] | None, *, agent_id: str | None = None
    ) -> Iterator[Held]:
        if scopes_ is not None:
            return self._newest(codec.held_from, codec.HELD, "e.held_at", scopes_)
        of_agent = "coalesce(?, s.agent_id) = s.agent_id"
        rows = self._newest_first(codec.HELD, "e.held_at", of_agent, [agent_id])
        return map(codec.held_from, rows)

    def count_held(self, *, agent_id: str | None = None) -> HeldCount:
        number, oldest = self._fetch_one(
            "SELECT count(*), min(held_at) FROM held JOIN scopes USING (scope_id)"
            " WHERE ?1 IS NULL OR agent_id = ?1",
            (agent_id,),
        )
        return HeldCount(number=number, oldest=optional_time(oldest))

    def reflection(self, reflection_id: str) -> Reflection | None:
        return self.reflections_by_ids([reflection_id]).get(reflection_id)

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        rows = self._fetch(f"{codec.REFLECTION} WHERE r.id {AMONG}", (json_array(reflection_ids),))
        return {found.id: found for found in map(codec.reflection_from, rows)}

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        rows = self._fetch(
            f"{codec.REFLECTION} WHERE r.propagated_from IS NOT NULL AND EXISTS (SELECT 1"
            f" FROM json_each(r.propagated_from) AS parent WHERE parent.value {AMONG})",
            (json_array(reflection_ids),),
        )
        return [codec.reflection_from(row) for row in rows]

    def pending(self, scope: Scope) -> list[Reflection]:
        rows = self._fetch(
            f"{codec.REFLECTION} WHERE r.scope_id {OF_SCOPE} AND r.absorbed = 0"
            " ORDER BY r.formed_at, r.place, r.id",
            (scope_keys(scope),),
        )
        return [codec.reflection_from(row) for row in rows]

    # -- texts and policies ------------------------------------------------------------------------

    def consolidations(self, scopes_: Sequence[Scope]) -> dict[Scope, Consolidation]:
        rows = self._fetch(
            f"{_TEXT_AND_BUFFER} WHERE c.scope_id {OF_SCOPES}", (scope_keys(*scopes_),)
        )
        texts = (codec.consolidation_from(row, from_list(row[-1])) for row in rows)
        found = {text.home: text for text in texts}
        return {scope: found[scope] for scope in dict.fromkeys(scopes_) if scope in found}

    def failed_drafts(self, scopes_: Sequence[Scope]) -> dict[Scope, FailedDrafts]:
        rows = self._fetch(
            "SELECT s.kind, s.agent_id, s.owner, c.failed_drafts FROM consolidations c"
            " JOIN scopes s USING (scope_id)"
            f" WHERE c.failed_drafts IS NOT NULL AND c.scope_id {OF_SCOPES}",
            (scope_keys(*scopes_),),
        )
        return {
            codec.scope_of(*owner): msgspec.json.decode(failed, type=FailedDrafts)
            for *owner, failed in rows
        }

    def policies(self, scopes_: Sequence[Scope]) -> dict[Scope, Policy]:
        rows = self._fetch(f"{codec.POLICY} WHERE p.scope_id {OF_SCOPES}", (scope_keys(*scopes_),))
        found = {policy.home: policy for policy in map(codec.policy_from, rows)}
        return {scope: found[scope] for scope in dict.fromkeys(scopes_) if scope in found}

    def shards(self, agent_id: str) -> list[Policy]:
        rows = self._fetch(
            f"{codec.POLICY} WHERE s.agent_id = ? AND s.kind = 'shard' ORDER BY s.owner",
            (agent_id,),
        )
        return [codec.policy_from(row) for row in rows]

    # -- scopes ------------------------------------------------------------------------------------

    def revisions(self, scopes_: Sequence[Scope]) -> dict[Scope, int]:
        with self._db.reading() as connection:
            states = scopes.states_of(connection, scopes_)
        return {each: states[each].revision if each in states else 0 for each in scopes_}

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        conditions, values = where(
            ("s.agent_id = ?", agent_id),
            (f"s.kind {AMONG}", json_array(kinds) if kinds else None),
            (
                f"s.kind = 'user' AND s.owner {AMONG}",
                None if user_ids is None else json_array(user_ids),
            ),
            ("s.pending >= ?", min_pending or None),
        )
        select = (
            f"{codec.SUMMARY} WHERE (s.agent_id, s.kind, s.owner) > (?, ?, ?) AND (s.facts > 0"
            " OR s.reflections > 0 OR c.version > 0 OR p.scope_id IS NOT NULL)"
            f"{conditions} ORDER BY s.agent_id, s.kind, s.owner LIMIT ?"
        )
        rows = self._pages(select, values, ("", "", ""), lambda row: row[:3])
        return map(codec.summary_from, rows)

    def scopes_of(self, agent_id: str) -> list[Scope]:
        rows = self._fetch(
            "SELECT kind, agent_id, owner FROM scopes WHERE agent_id = ?", (agent_id,)
        )
        return sorted(codec.scope_of(*row) for row in rows)

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        conditions, values = where(("s.agent_id = ?", agent_id))
        rows = self._fetch(
            "SELECT s.kind, s.agent_id, s.owner FROM consolidations c"
            f" JOIN scopes s USING (scope_id) WHERE c.unpropagated IS NOT NULL{conditions}",
            values,
        )
        return sorted(
            (codec.scope_of(*row) for row in rows),
            key=lambda scope: (scope.agent_id, scope.kind, scope.owner),
        )
