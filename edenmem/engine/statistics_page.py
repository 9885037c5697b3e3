"""Statistics as one page of HTML that needs nothing but itself: no script, no font, no server."""

from __future__ import annotations

from edenmem.engine.overview import names
from edenmem.engine.statistics import MemoryStatistics, daily
from edenmem.engine.statistics_bars import stacked_bars
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from edenmem.text import one_line


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
        growth=stacked_bars(
            [week.week[5:] for week in weeks],
            {
                "facts": [week.facts for week in weeks],
                "reflections": [week.reflections for week in weeks],
            },
        ),
        kinds=stacked_bars(
            [kind.kind for kind in statistics.kinds],
            {
                "facts": [kind.facts for kind in statistics.kinds],
                "reflections absorbed": [k.reflections - k.pending for k in statistics.kinds],
                "reflections pending": [kind.pending for kind in statistics.kinds],
            },
        ),
        tokens=stacked_bars(
            [day.day[5:] for day in days],
            {
                "tokens in": [day.input_tokens for day in days],
                "tokens out": [day.output_tokens for day in days],
            },
        ),
        cost=stacked_bars([day.day[5:] for day in days], {"US dollars": [d.cost for d in days]}),
    )
