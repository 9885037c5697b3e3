"""Render statistics as an HTML page with stacked bars in inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

import msgspec

from edenmem.engine.scopes.references import load_labels
from edenmem.engine.stats.statistics import MemoryStatistics, daily
from edenmem.store.protocol.store import Store
from edenmem.text import one_line

WIDTH, HEIGHT = 900, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 28
#: Maximum number of labels below the bars, so that they do not overlap.
_MOST_LABELS = 14


class Chart(msgspec.Struct, frozen=True):
    """A drawing, and the names of its series in the order of colors."""

    svg: str
    legend: tuple[str, ...]


def draw_stacked_bars(labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> Chart | None:
    """Draw one stacked bar per label; return None if all values are zero.

    The series have the colors ``--series-1``, ``--series-2``, … of the page; each segment has a
    tooltip with its label, name and value.

    Args:
        labels: Short texts below the bars.
        series: Name → a non-negative value for each label.
    """
    highest = max(map(sum, zip(*series.values(), strict=True)), default=0.0)
    if not highest:
        return None
    ticks = ticks_of(highest)
    top = max(highest, ticks[-1])

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - value / top * (HEIGHT - _BOTTOM - _TOP)

    slot = (WIDTH - _LEFT - _RIGHT) / len(labels)
    shapes = [_guide(y(tick), _format_number(tick)) for tick in ticks]
    every = -(-len(labels) // _MOST_LABELS)
    for place, label in enumerate(labels):
        left, reached = _LEFT + place * slot, 0.0
        for number, (name, row) in enumerate(series.items(), start=1):
            if row[place]:
                high, low = y(reached + row[place]), y(reached)
                title = escape(f"{label}, {name}: {_format_number(row[place])}")
                shapes.append(
                    f'<rect x="{left + slot * 0.15:.1f}" y="{high:.1f}" width="{slot * 0.7:.1f}"'
                    f' height="{low - high:.1f}" fill="var(--series-{number})">'
                    f"<title>{title}</title></rect>"
                )
                reached += row[place]
        if place % every == 0:
            shapes.append(
                f'<text x="{left + slot / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
                f"{escape(label)}</text>"
            )
    drawn = "".join(shapes)
    return Chart(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{drawn}</svg>', tuple(series))


def ticks_of(highest: float) -> list[float]:
    """Return at most six ticks from 0 to ``highest``, at round distances (1, 2, 5, 10, …)."""
    distance = 10.0**-4
    steps = (2.0, 2.5, 2.0)  # 1, 2, 5, 10
    step = 0
    while highest / distance > 5:
        distance *= steps[step % 3]
        step += 1
    return [round(number * distance, 6) for number in range(int(highest / distance) + 1)]


def _guide(y: float, words: str) -> str:
    return (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
    )


def _format_number(value: float) -> str:
    return f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


def page(statistics: MemoryStatistics, store: Store, *, place: str) -> str:
    """Render the page; it follows the browser's choice of light or dark.

    Args:
        statistics: The statistics.
        store: The store, for names of agents and owners.
        place: The location of the store, without secrets, for the heading.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    scopes = [
        *(text.scope for text in statistics.texts),
        *(age.scope for age in statistics.buffers),
        *(fact.home for fact in statistics.most_retrieved),
    ]
    agents = [statistics.agent_id] if statistics.agent_id else []
    labels = load_labels(store, [*scopes, *agents])

    environment = Environment(
        loader=PackageLoader("edenmem", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["text"] = one_line
    weeks, days = statistics.weeks, daily(statistics.days)
    return environment.get_template("statistics.html.j2").render(
        statistics=statistics,
        place=place,
        agent=labels.get(statistics.agent_id or "", statistics.agent_id),
        label=labels.full,
        days=days,
        growth=draw_stacked_bars(
            [week.week[5:] for week in weeks],
            {
                "facts": [week.facts for week in weeks],
                "reflections": [week.reflections for week in weeks],
            },
        ),
        kinds=draw_stacked_bars(
            [kind.kind for kind in statistics.kinds],
            {
                "facts": [kind.facts for kind in statistics.kinds],
                "reflections absorbed": [k.reflections - k.pending for k in statistics.kinds],
                "reflections pending": [kind.pending for kind in statistics.kinds],
            },
        ),
        tokens=draw_stacked_bars(
            [day.day[5:] for day in days],
            {
                "tokens in": [day.input_tokens for day in days],
                "tokens out": [day.output_tokens for day in days],
            },
        ),
        cost=draw_stacked_bars(
            [day.day[5:] for day in days], {"US dollars": [d.cost for d in days]}
        ),
    )
