"""Statistics as one page of HTML that needs nothing but itself: no script, no font, no server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edenmem.engine.overview import names
from edenmem.engine.statistics import MemoryStatistics, daily
from edenmem.models.scope import Scope
from edenmem.store.protocol import Store
from edenmem.text import one_line

_NAMESPACE = "{http://www.w3.org/2000/svg}"


def page(statistics: MemoryStatistics, store: Store, *, place: str) -> str:
    """The whole page; it follows the browser's choice of light or dark.

    Args:
        statistics: What it shows.
        store: Knows the names of agents and owners.
        place: Where memory is, without secrets, for the heading.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    scopes = [
        *(text.scope for text in statistics.texts),
        *(age.scope for age in statistics.buffers),
        *(fact.home for fact in statistics.most_retrieved),
    ]
    agents = [statistics.agent_id] if statistics.agent_id else []
    labels = names(store, [*scopes, *agents])

    def label(scope: Scope) -> str:
        agent = labels.get(scope.agent_id, scope.agent_id)
        owner = labels.get(scope.owner, scope.owner)
        return " ".join(part for part in (agent, "·", scope.kind, owner) if part)

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
        label=label,
        days=days,
        growth=bars(
            "growth",
            [week.week[5:] for week in weeks],
            {
                "facts": [week.facts for week in weeks],
                "reflections": [week.reflections for week in weeks],
            },
        ),
        kinds=bars(
            "kinds",
            [kind.kind for kind in statistics.kinds],
            {
                "facts": [kind.facts for kind in statistics.kinds],
                "reflections absorbed": [k.reflections - k.pending for k in statistics.kinds],
                "reflections pending": [kind.pending for kind in statistics.kinds],
            },
        ),
        tokens=bars(
            "tokens",
            [day.day[5:] for day in days],
            {
                "tokens in": [day.input_tokens for day in days],
                "tokens out": [day.output_tokens for day in days],
            },
        ),
        cost=bars("cost", [day.day[5:] for day in days], {"US dollars": [d.cost for d in days]}),
    )


def bars(name: str, labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> Any:
    """Stacked bars as inline SVG, in the colours of the page; "" if there is nothing to show.

    Args:
        name: Unique on the page.
        labels: Below the bars.
        series: Name → a number for each label.
    """
    from xml.etree.ElementTree import tostring  # writes only, and only what pygal built

    from markupsafe import Markup
    from pygal import Config, StackedBar
    from pygal.style import Style

    if not any(any(row) for row in series.values()):
        return ""
    colors = tuple(f"var(--series-{number})" for number in range(1, len(series) + 1))
    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="var(--ink)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--rule)",
        guide_stroke_color="var(--rule)",
        major_guide_stroke_color="var(--rule)",
        opacity="1",
        colors=colors,
        font_family="inherit",
        label_font_size=13,
        major_label_font_size=13,
        legend_font_size=13,
    )
    config = Config(
        js=(),
        style=style,
        width=900,
        height=260,
        legend_at_bottom=True,
        legend_at_bottom_columns=len(series),
        legend_box_size=10,
        margin=6,
        show_minor_x_labels=True,
        truncate_label=-1,
        truncate_legend=-1,
        x_labels_major_count=min(len(labels), 13) if len(labels) > 13 else None,
        disable_xml_declaration=True,
        value_formatter=lambda value: f"{value:,.4g}" if value % 1 else f"{value:,.0f}",
    )
    if len(labels) > 13:
        config.show_minor_x_labels = False
    chart = StackedBar(config)
    chart.uuid = name  # else a random one, and the same numbers give other bytes
    chart.x_labels = list(labels)
    for title, row in series.items():
        chart.add(title, [float(value) for value in row])
    root = chart.render_tree()
    _strip(root)
    text = tostring(root, encoding="unicode")
    return Markup(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))  # noqa: S704 - built above


def _strip(root: Any) -> None:
    """Take out what would run or be fetched: the page is to be looked at, wherever it lies."""
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{_NAMESPACE}script", "script"):
                parent.remove(child)
