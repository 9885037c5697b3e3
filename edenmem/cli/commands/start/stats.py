"""``edenmem stats``: memory in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import describe_held, dollars, token_count
from edenmem.cli.terminal.charts import draw_stacked_bars
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import parse_when
from edenmem.engine.reports import ScopeStatus
from edenmem.engine.scopes.references import Labels
from edenmem.engine.stats.statistics import MemoryStatistics, daily
from edenmem.models.ids import utc_now
from edenmem.models.memory import Fact
from edenmem.models.statistics import BufferAge, FactUse, KindCount, UsageOnDay
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
    html: Annotated[
        str | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page with charts to a file; --force overwrites it.",
        ),
    ] = None,
) -> None:
    """Show growth, sizes, buffers, use of facts, tokens and cost.

    \b
    edenmem stats
    edenmem stats --agent mira --since 30d --format json
    edenmem stats --html memory.html
    """
    run = invocation(ctx)
    now = utc_now()
    statistics = run.service.stats.gather(
        since=parse_when(since, "--since") or now - _PERIOD,
        now=now,
        agent_id=agent_id_of(run, agent),
        top=limit,
    )
    if html is None:
        print_statistics(run, statistics)
    else:
        _write_page(run, statistics, Path(html))


def _write_page(run: Invocation, statistics: MemoryStatistics, path: Path) -> None:
    from edenmem.engine.exchange.files import open_for_writing

    with open_for_writing(
        str(path), compress=False, force=run.overwrite, in_use=run.files_in_use
    ) as file:
        file.write(run.service.stats.page(statistics).encode())
    run.out.note(f"wrote {path}")


#: Days in the table of cost; the chart and the data contain all.
_LAST_DAYS = 14


def print_statistics(run: Invocation, statistics: MemoryStatistics) -> None:
    """Print statistics: tables and charts, or one object of data."""
    run.out.report([statistics], lambda: _show_statistics(run, statistics))


def _show_statistics(run: Invocation, statistics: MemoryStatistics) -> None:
    labels = run.service.scopes.labels(
        [
            *(text.scope for text in statistics.texts),
            *(age.scope for age in statistics.buffers),
            *(fact.home for fact in statistics.most_retrieved),
        ],
    )
    out = run.out
    _section(run, "Memory per week")
    weeks = statistics.weeks
    made = {
        "facts": [week.facts for week in weeks],
        "reflections": [week.reflections for week in weeks],
    }
    if any(map(any, made.values())):
        out.line(draw_stacked_bars([week.week[5:] for week in weeks], made, width=out.width))
    else:
        is_empty = not any(kind.facts or kind.reflections for kind in statistics.kinds)
        since = "yet" if is_empty else f"since {statistics.since:%Y-%m-%d}"
        out.note(f"no memory {since}")
    _section(run, "Memory by scope type")
    kinds = [kind for kind in statistics.kinds if kind.facts or kind.reflections]
    out.listing(kinds, _KINDS, empty="no memory yet")
    _section(run, "Use of facts")
    out.fields([*_use(statistics.use), ("held for review", describe_held(statistics.held))])
    if statistics.most_retrieved:
        out.line()
        out.listing(statistics.most_retrieved, _build_columns(labels))
    _section(run, "Longest texts")
    if statistics.over_limit:
        out.note(f"{many(statistics.over_limit, 'text')} over the limit")
    out.listing(statistics.texts, _texts(labels), empty="none")
    _section(run, "Oldest pending reflections")
    out.listing(statistics.buffers, _buffers(labels), empty="nothing pending")
    if statistics.rejected:
        _section(run, "Rejected items of models")
        out.listing(list(statistics.rejected.items()), _REJECTED)
    _section(run, "Model costs")
    _print_cost(run, daily(statistics.days))


def _print_cost(run: Invocation, days: Sequence[UsageOnDay]) -> None:
    if len(days) > 1:
        tokens = {
            "tokens in": [day.input_tokens for day in days],
            "tokens out": [day.output_tokens for day in days],
        }
        run.out.line(draw_stacked_bars([day.day[5:] for day in days], tokens, width=run.out.width))
    run.out.listing(days[-_LAST_DAYS:], _DAYS, empty="no model calls")


def _section(run: Invocation, title: str) -> None:
    run.out.line()
    run.out.heading(title)


def _use(use: FactUse) -> list[tuple[str, object]]:
    share = f" ({use.never / use.facts:.0%})" if use.facts else ""
    return [
        ("facts", f"{use.facts:,}"),
        ("never retrieved", f"{use.never:,}{share}"),
        ("retrievals", f"{use.accesses:,}"),
        ("unconfirmed", f"{use.unconfirmed:,}" if use.unconfirmed else ""),
        ("in several scopes", f"{use.repeated:,}" if use.repeated else ""),
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


def _build_columns(labels: Labels) -> list[Column[Fact]]:
    return [
        Column("fact", lambda f: f.id, "id"),
        Column("retrievals", lambda f: f.access_count, "number"),
        Column("last", lambda f: f.last_accessed_at, "time"),
        Column("scope", lambda f: labels.full(f.home), "name"),
        Column("content", lambda f: f.content, "text"),
    ]


def _texts(labels: Labels) -> list[Column[ScopeStatus]]:
    return [
        Column("agent", lambda t: labels[t.scope.agent_id], "name"),
        Column("kind", lambda t: t.scope.kind),
        Column("owner", lambda t: labels[t.scope.owner], "name"),
        Column("words", lambda t: t.words, "number"),
        Column("limit", lambda t: t.word_limit, "number"),
        Column("full", lambda t: f"{t.words / max(t.word_limit, 1):.0%}", "number"),
        Column("version", lambda t: t.version, "number"),
        Column("written", lambda t: t.last_consolidated_at, "time"),
    ]


def _buffers(labels: Labels) -> list[Column[BufferAge]]:
    return [
        Column("agent", lambda b: labels[b.scope.agent_id], "name"),
        Column("kind", lambda b: b.scope.kind),
        Column("owner", lambda b: labels[b.scope.owner], "name"),
        Column("pending", lambda b: b.pending, "number"),
        Column("oldest", lambda b: b.oldest_at, "time"),
    ]
