"""``edenmem stats``: memory in numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import describe_held, dollars, token_count
from edenmem.cli.terminal.tables import Column
from edenmem.engine.statistics import MemoryStatistics, TextSize, WeekCount, daily
from edenmem.models.ids import utc_now
from edenmem.models.memory import Fact
from edenmem.models.statistics import BufferAge, KindCount, UsageOnDay
from edenmem.text import many

#: Default period: as many weeks as fit on a screen.
_PERIOD = timedelta(weeks=12)


def stats(
    ctx: typer.Context,
    agent: options.Agent = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Start of growth and cost.  [default: 12w]"),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=1,
            max=100,
            help="Maximum number of texts, buffers and facts in each table.",
        ),
    ] = 5,
) -> None:
    """Show growth, sizes, buffers, use of facts, tokens and cost.

    \b
    edenmem stats
    edenmem stats --agent mira --since 30d --format json
    """
    run = invocation(ctx)
    now = utc_now()
    statistics = run.service.stats.gather(
        since=options.parse_when(since, "--since") or now - _PERIOD,
        now=now,
        agent_id=options.agent_id_of(run, agent),
        top=limit,
    )
    if not run.out.data([statistics]):
        _show_statistics(run, statistics)


#: Days in the table of cost; the data contain all.
_LAST_DAYS = 14


def _show_statistics(run: Invocation, statistics: MemoryStatistics) -> None:
    out = run.out
    out.section("Memory per week")
    weeks = [week for week in statistics.weeks if week.facts or week.reflections]
    is_empty = not any(kind.facts or kind.reflections for kind in statistics.kinds)
    since = "yet" if is_empty else f"since {statistics.since:%Y-%m-%d}"
    out.listing(weeks, _WEEKS, empty=f"no memory {since}")
    out.section("Memory by scope type")
    kinds = [kind for kind in statistics.kinds if kind.facts or kind.reflections]
    out.listing(kinds, _KINDS, empty="no memory yet")
    out.section("Use of facts")
    use = statistics.use
    share = f" ({use.never / use.facts:.0%})" if use.facts else ""
    out.fields(
        [
            ("facts", f"{use.facts:,}"),
            ("never retrieved", f"{use.never:,}{share}"),
            ("retrievals", f"{use.accesses:,}"),
            ("unconfirmed", f"{use.unconfirmed:,}" if use.unconfirmed else ""),
            ("in several scopes", f"{use.repeated:,}" if use.repeated else ""),
            ("held for review", describe_held(statistics.held)),
        ]
    )
    if statistics.most_retrieved:
        out.line()
        out.listing(statistics.most_retrieved, _RETRIEVED)
    if statistics.texts:
        out.section("Longest texts")
        if statistics.over_limit:
            out.note(f"{many(statistics.over_limit, 'text')} over the limit")
        out.listing(statistics.texts, _TEXTS)
    if statistics.buffers:
        out.section("Oldest pending reflections")
        out.listing(statistics.buffers, _BUFFERS)
    if statistics.rejected:
        out.section("Rejected items of models")
        out.listing(list(statistics.rejected.items()), _REJECTED)
    days = daily(statistics.days)
    if days:
        out.section("Model costs")
    out.listing(days[-_LAST_DAYS:], _DAYS, empty="no model calls")


_WEEKS: list[Column[WeekCount]] = [
    Column("week of", lambda w: w.week),
    Column("facts", lambda w: w.facts, "number"),
    Column("reflections", lambda w: w.reflections, "number"),
]

_KINDS: list[Column[KindCount]] = [
    Column("kind", lambda k: k.kind),
    Column("facts", lambda k: k.facts, "number"),
    Column("reflections", lambda k: k.reflections, "number"),
    Column("pending", lambda k: k.pending, "number"),
]

_REJECTED: list[Column[tuple[str, int]]] = [
    Column("rule", lambda rejected: rejected[0]),
    Column("items", lambda rejected: rejected[1], "number"),
]

_DAYS: list[Column[UsageOnDay]] = [
    Column("day", lambda d: d.day),
    Column("calls", lambda d: d.calls, "number"),
    Column("tokens in", lambda d: token_count(d, d.input_tokens), "number"),
    Column("tokens out", lambda d: token_count(d, d.output_tokens), "number"),
    Column("US dollars", lambda d: dollars(d), "number"),
    Column("models", lambda d: d.model, "text"),
]


_RETRIEVED: list[Column[Fact]] = [
    Column("fact", lambda f: f.id, "id"),
    Column("retrievals", lambda f: f.access_count, "number"),
    Column("last", lambda f: f.last_accessed_at, "time"),
    Column("scope", lambda f: f.home, "name", "full"),
    Column("content", lambda f: f.content, "text"),
]

_TEXTS: list[Column[TextSize]] = [
    Column("agent", lambda t: t.scope.agent_id, "name", "account"),
    Column("kind", lambda t: t.scope.kind),
    Column("owner", lambda t: t.scope, "name", "owner"),
    Column("words", lambda t: t.words, "number"),
    Column("limit", lambda t: t.word_limit, "number"),
    Column("full", lambda t: f"{t.words / max(t.word_limit, 1):.0%}", "number"),
    Column("version", lambda t: t.version, "number"),
    Column("written", lambda t: t.last_consolidated_at, "time"),
]

_BUFFERS: list[Column[BufferAge]] = [
    Column("agent", lambda b: b.scope.agent_id, "name", "account"),
    Column("kind", lambda b: b.scope.kind),
    Column("owner", lambda b: b.scope, "name", "owner"),
    Column("pending", lambda b: b.pending, "number"),
    Column("oldest", lambda b: b.oldest_at, "time"),
]
