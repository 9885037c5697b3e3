"""``edenmem stats``: memory in numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import describe_held, dollars, token_count
from edenmem.cli.terminal.tables import Column
from edenmem.engine.stats.statistics import MemoryStatistics, TextSize, daily
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
        since=options.parse_when(since, "--since") or now - _PERIOD,
        now=now,
        agent_id=options.agent_id_of(run, agent),
        top=limit,
    )
    if html is not None:
        from edenmem.engine.exchange.files import open_for_writing

        force, in_use = run.overwrite, run.files_in_use
        with open_for_writing(html, compress=False, force=force, in_use=in_use) as file:
            file.write(run.service.stats.page(statistics).encode())
        run.out.note(f"wrote {html}")
    elif not run.out.data([statistics]):
        _show_statistics(run, statistics)


#: Days in the table of cost; the chart and the data contain all.
_LAST_DAYS = 14


def _show_statistics(run: Invocation, statistics: MemoryStatistics) -> None:
    out = run.out
    out.section("Memory per week")
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
    if len(days) > 1:
        tokens = {
            "tokens in": [day.input_tokens for day in days],
            "tokens out": [day.output_tokens for day in days],
        }
        out.line(draw_stacked_bars([day.day[5:] for day in days], tokens, width=out.width))
    out.listing(days[-_LAST_DAYS:], _DAYS, empty="no model calls")


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

# -- charts --------------------------------------------------------------------------------------

#: Marks of the series in a chart, distinguishable without color.
_MARKS = ("█", "░", "▒", "▓")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def draw_stacked_bars(
    labels: Sequence[str], series: Mapping[str, Sequence[float]], *, width: int, height: int = 10
) -> str:
    """Draw stacked vertical bars, one for each label.

    Args:
        labels: Short labels below the bars.
        series: Name → a number for each label.
        width: Columns; at most 100 are used.
        height: Lines.

    Returns:
        Lines without styles or control codes.
    """
    import plotext

    from edenmem.engine.stats.page import ticks_of

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(width, 100), height)
    plotext.frame(False)
    marks = list(_MARKS[: len(series)])
    plotext.stacked_bar(list(labels), [list(row) for row in series.values()], marker=marks)
    highest = max(map(sum, zip(*series.values(), strict=True)), default=0)
    ticks = [tick for tick in ticks_of(highest) if tick % 1 == 0]  # counts are integers
    plotext.yticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    labeled = _choose_labels(labels, min(width, 100))
    plotext.xticks(labeled, [labels[place - 1] for place in labeled])
    drawn = _STYLE.sub("", plotext.build())
    plotext.clear_figure()
    legend = "   ".join(f"{mark} {name}" for mark, name in zip(marks, series, strict=True))
    return "\n".join([*(line.rstrip() for line in drawn.splitlines()), f"  {legend}"])


def _choose_labels(labels: Sequence[str], width: int) -> list[int]:
    """Return positions, from 1, of evenly spaced labels that fit, including the last.

    Otherwise plotext drops arbitrary labels, most often the newest.
    """
    room = max(map(len, labels), default=0) + 3
    distance = max(1, -(-len(labels) * room // max(width - 6, room)))
    return list(range(len(labels), 0, -distance))[::-1]
