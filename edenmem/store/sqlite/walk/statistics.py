"""Statistics of memory."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from edenmem.models.backup import RecordKind, Selection
from edenmem.models.integrity import Finding
from edenmem.models.scope import ScopeKind
from edenmem.models.statistics import FactUse, FormedOnDay, KindCount, MemoryCounts
from edenmem.store.sqlite.core import codec
from edenmem.store.sqlite.core.codec import EVER, day_of, to_ms
from edenmem.store.sqlite.core.part import Part
from edenmem.store.sqlite.walk.sources import SOURCES
from edenmem.text import word_count

#: Column of ``scopes`` → counted kind.
_COUNTED = {
    "facts": "SELECT count(*) FROM facts x WHERE x.scope_id = scopes.scope_id",
    "reflections": "SELECT count(*) FROM reflections x WHERE x.scope_id = scopes.scope_id",
    "pending": (
        "SELECT count(*) FROM reflections x WHERE x.scope_id = scopes.scope_id AND x.absorbed = 0"
    ),
}


class Statistics(Part):
    """See `edenmem.store.protocol.walk.Statistics`."""

    def counts(self, *, agent_id: str | None = None, since: datetime | None = None) -> MemoryCounts:
        days: dict[str, dict[str, int]] = {}
        first = EVER if since is None else to_ms(since)
        dated_at = "coalesce(said_at, formed_at)"
        day = day_of(dated_at)
        with self._db.reading() as connection:
            for name, kind in (("facts", RecordKind.FACT), ("reflections", RecordKind.REFLECTION)):
                rows, values = _rows_of(kind, agent_id, f"{dated_at} >= ?", first)
                for found, count in connection.execute(
                    f"SELECT {day} AS day, count(*) {rows} GROUP BY day", values
                ):
                    days.setdefault(found, {})[name] = count
            by_kind = {
                kind: numbers
                for kind, *numbers in connection.execute(
                    "SELECT kind, sum(facts), sum(reflections), sum(pending) FROM scopes"
                    " WHERE ?1 IS NULL OR agent_id = ?1 GROUP BY kind",
                    (agent_id,),
                )
            }
            rows, values = _rows_of(RecordKind.FACT, agent_id)
            use = connection.execute(
                "SELECT count(*), total(f.access_count = 0), total(f.access_count),"
                f" total(f.unconfirmed > '') {rows}",
                values,
            ).fetchone()
        facts, never, accesses, unconfirmed = map(int, use)
        return MemoryCounts(
            days=tuple(FormedOnDay(day=day, **days[day]) for day in sorted(days)),
            kinds=tuple(
                KindCount(kind=kind, facts=facts, reflections=reflections, pending=pending)
                for kind in ScopeKind
                for facts, reflections, pending in (by_kind.get(kind, (0, 0, 0)),)
            ),
            use=FactUse(
                facts=facts,
                never=never,
                accesses=accesses,
                unconfirmed=unconfirmed,
            ),
        )

    def count_rejections(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Mapping[str, int]:
        return dict(
            self._fetch(
                "SELECT coalesce(json_extract(value, '$.rule'), ''), count(*)"
                " FROM formations, json_each(decisions)"
                " WHERE json_extract(value, '$.action') = 'REJECTED'"
                " AND coalesce(agent_id = ?, 1) AND created_at >= ? GROUP BY 1 ORDER BY 1",
                (agent_id, EVER if since is None else to_ms(since)),
            )
        )

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
            repaired = connection.execute(f"UPDATE scopes SET {names} WHERE {differs}").rowcount
            texts = connection.execute("SELECT scope_id, words, content FROM consolidations")
            wrong = [
                (real, scope_id)
                for scope_id, words, content in texts
                if words != (real := word_count(content))
            ]
            connection.executemany("UPDATE consolidations SET words = ? WHERE scope_id = ?", wrong)
        return repaired + len(wrong)


def _rows_of(
    kind: RecordKind, agent_id: str | None, condition: str = "1", *bounds: int
) -> tuple[str, list[Any]]:
    """Return the tables and the condition by which rows of a kind are counted with their scopes."""
    source = SOURCES[kind]
    wanted = Selection(agent_ids=() if agent_id is None else (agent_id,))
    where = source.narrow(wanted).add(condition, *bounds)
    return f"FROM {source.rows} JOIN scopes s USING (scope_id) WHERE {where.text}", where.values


def _miscount(owner: Sequence[str], name: str, kept: int, real: int) -> Finding:
    scope = codec.scope_of(*owner)
    return Finding(
        target_type="scope",
        target_id=scope.key,
        detail=f"{name}: {kept:,} are recorded, {real:,} are there",
        agent_id=scope.agent_id,
        scope=scope,
    )
