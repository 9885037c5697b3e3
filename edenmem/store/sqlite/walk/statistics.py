"""Numbers about memory."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.scope import ScopeKind
from edenmem.models.statistics import BufferAge, FactUse, FormedOnDay, KindCount
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import EVER, day_of, time, to_ms
from edenmem.store.sqlite.core.part import Part
from edenmem.text import word_count

#: Rows of a scope's table, with the agent's condition or none.
_OF_AGENT = "JOIN scopes s USING (scope_id) WHERE {condition}{agent}"

#: Column of ``scopes`` → what it counts.
_COUNTED = {
    "facts": "SELECT count(*) FROM facts x WHERE x.scope_id = scopes.scope_id",
    "reflections": "SELECT count(*) FROM reflections x WHERE x.scope_id = scopes.scope_id",
    "pending": (
        "SELECT count(*) FROM reflections x WHERE x.scope_id = scopes.scope_id AND x.absorbed = 0"
    ),
}


class Statistics(Part):
    """See `edenmem.store.protocol.statistics.Statistics`."""

    def count_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[FormedOnDay]:
        counts: dict[str, dict[str, int]] = {}
        for table in ("facts", "reflections"):
            rows = self._count_rows(
                f"SELECT {day_of('formed_at')} AS day, count(*) FROM {table}",
                "formed_at >= ?1",
                agent_id,
                EVER if since is None else to_ms(since),
                "GROUP BY day",
            )
            for day, count in rows:
                counts.setdefault(day, {})[table] = count
        return [FormedOnDay(day=day, **counts[day]) for day in sorted(counts)]

    def counts_by_kind(self, *, agent_id: str | None = None) -> Sequence[KindCount]:
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT kind, sum(facts), sum(reflections), sum(pending) FROM scopes"
                " WHERE ?1 IS NULL OR agent_id = ?1 GROUP BY kind",
                (agent_id,),
            ).fetchall()
        found = {kind: numbers for kind, *numbers in rows}
        return [
            KindCount(kind=kind, facts=facts, reflections=reflections, pending=pending)
            for kind in ScopeKind
            for facts, reflections, pending in (found.get(kind, (0, 0, 0)),)
        ]

    def buffer_ages(self, *, agent_id: str | None = None, limit: int) -> Sequence[BufferAge]:
        rows = self._count_rows(
            "SELECT s.kind, s.agent_id, s.owner, count(*), min(formed_at) AS oldest"
            " FROM reflections",
            "absorbed = 0 AND formed_at >= ?1",
            agent_id,
            EVER,
            f"GROUP BY scope_id ORDER BY oldest, s.agent_id, s.kind, s.owner LIMIT {int(limit)}",
        )
        return [
            BufferAge(
                scope=codec.scope_of(kind, agent, owner), pending=pending, oldest_at=time(oldest)
            )
            for kind, agent, owner, pending, oldest in rows
        ]

    def fact_use(self, *, agent_id: str | None = None) -> FactUse:
        ((facts, never, accesses),) = self._count_rows(
            "SELECT count(*), total(access_count = 0), total(access_count) FROM facts",
            "formed_at >= ?1",
            agent_id,
            EVER,
        )
        ((repeated,),) = self._count_rows(
            "SELECT total(n) FROM (SELECT count(*) AS n FROM facts",
            "formed_at >= ?1",
            agent_id,
            EVER,
            "GROUP BY s.agent_id, hash HAVING n > 1)",
        )
        return FactUse(
            facts=facts, never=int(never), accesses=int(accesses), repeated=int(repeated)
        )

    def most_retrieved(self, *, agent_id: str | None = None, limit: int) -> Sequence[Fact]:
        where = "WHERE f.access_count > 0 AND (?1 IS NULL OR s.agent_id = ?1)"
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{codec.FACT} {where} ORDER BY f.access_count DESC, f.id LIMIT ?2",
                (agent_id, limit),
            ).fetchall()
        return [codec.fact_from(row) for row in rows]

    def _count_rows(
        self, select: str, condition: str, agent_id: str | None, since: int, rest: str = ""
    ) -> list[Any]:
        agent = "" if agent_id is None else " AND s.agent_id = ?2"
        joined = _OF_AGENT.format(condition=condition, agent=agent)
        bounds = (since,) if agent_id is None else (since, agent_id)
        with self._db.reading() as connection:
            return connection.execute(f"{select} {joined} {rest}", bounds).fetchall()

    def miscounts(self) -> Iterator[Finding]:
        counted = ", ".join(f"{kept}, ({count})" for kept, count in _COUNTED.items())
        with self._db.reading() as connection:
            rows = connection.execute(f"SELECT kind, agent_id, owner, {counted} FROM scopes")
            wrong = [
                _miscount(row[:3], name, kept, real)
                for row in rows
                for name, kept, real in zip(_COUNTED, row[3::2], row[4::2], strict=True)
                if kept != real
            ]
            wrong += [
                _miscount(owner, "words", words, real)
                for *owner, words, content in connection.execute(
                    "SELECT s.kind, s.agent_id, s.owner, c.words, c.content"
                    " FROM consolidations c JOIN scopes s USING (scope_id)"
                )
                if words != (real := word_count(content))
            ]
        yield from wrong

    def recount(self) -> int:
        names = ", ".join(f"{kept} = ({count})" for kept, count in _COUNTED.items())
        differs = " OR ".join(f"{kept} <> ({count})" for kept, count in _COUNTED.items())
        with self._db.writing() as connection:
            mended = connection.execute(f"UPDATE scopes SET {names} WHERE {differs}").rowcount
            texts = connection.execute("SELECT scope_id, words, content FROM consolidations")
            wrong = [
                (real, scope_id)
                for scope_id, words, content in texts
                if words != (real := word_count(content))
            ]
            connection.executemany("UPDATE consolidations SET words = ? WHERE scope_id = ?", wrong)
        return mended + len(wrong)


def _miscount(owner: Sequence[str], name: str, kept: int, real: int) -> Finding:
    scope = codec.scope_of(*owner)
    return Finding(
        target_type="scope",
        target_id=scope.key,
        detail=f"{name}: {kept:,} are noted, {real:,} are there",
        agent_id=scope.agent_id,
        scope=scope,
    )
