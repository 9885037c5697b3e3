"""``edenmem status|stats``: the store at a glance, and memory in numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.views import count_noun, describe_former, describe_held, dollars, token_count
from edenmem.cli.commands.embed import describe_switch
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column
from edenmem.engine.scopes.overview import AgentOverview, StoreOverview
from edenmem.errors import StoreError
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.ids import utc_now
from edenmem.settings.paths import sqlite_path
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.cold.sessions import SharingReport
    from edenmem.engine.statistics import MemoryStatistics, WeekCount
    from edenmem.models.statistics import KindCount, UsageOnDay


def status(run: Invocation, agent: options.Agent = None) -> None:
    """Show the store, its size, due work and failures.

    \b
    edenmem status
    edenmem status --agent mira --format json
    """
    named = run.settings.store.uri
    path = sqlite_path(named) if named else None  # 'edenmem init' creates the default folder
    if path is not None and not path.parent.is_dir():
        raise StoreError(
            f"no such folder for the store: {path.parent}",
            hint="check --uri, or create the store with 'edenmem init'",
        )
    agent_id = options.agent_id_of(run, agent)
    overview = run.service.scopes.overview(agent_id=agent_id)
    run.out.notes(overview.notices)
    sharing = run.service.cold.sharing(agent_id) if overview.store.initialized else None
    if sharing is not None and not sharing.in_force.shared:
        sharing = None
    run.out.record(
        overview,
        _fields(run, overview, sharing),
        data=lambda one: to_data(one) | {"sharing": to_data(sharing) if sharing else None},
    )
    if not overview.store.initialized:
        run.out.note("the store does not exist yet: run 'edenmem init'")
    if run.out.is_data or not overview.store.initialized:
        return
    counts = overview.store.counts
    if counts.get("sessions") and not counts.get("formations") and sharing is None:
        run.out.note("no conversation was formed yet: run 'edenmem form --idle'")
    if overview.agents:
        run.out.line()
        run.out.listing(overview.agents, _AGENTS)
    else:
        run.out.note(options.NO_AGENTS)
    troubled = [*overview.failed, *overview.unfinished]
    if troubled:
        run.out.line()
        run.out.listing(troubled, _FORMATIONS)


def _fields(
    run: Invocation, overview: StoreOverview, sharing: SharingReport | None
) -> list[tuple[str, object]]:
    """Return the fields of the store, and about a database shared with the platform."""
    info, switch = overview.store, overview.switch
    version, kind = info.server_version, info.kind
    vectors = ", ".join(
        f"{count} {f'of {model}' if model else 'without'}"
        for model, count in sorted(overview.vector_models.items())
    )
    shared: list[tuple[str, object]] = []
    if sharing is not None:
        shared = [
            ("former", describe_former(sharing.in_force)),
            ("skipped", many(sharing.unread, "message") if sharing.unread else ""),
            ("read twice", many(sharing.twice, "message") if sharing.twice else ""),
        ]
    return [
        ("store", info.location),
        (
            "database",
            version if version.casefold().startswith(kind) else f"{kind} {version}".strip(),
        ),
        ("schema", info.schema_version),
        ("size", f"{info.size_bytes / 1_000_000:.1f} MB" if info.size_bytes else ""),
        ("search", overview.search),
        ("embeddings", run.service.embeddings.describe_destination()),
        ("contains", ", ".join(count_noun(*each) for each in info.counts.items() if each[1])),
        ("vectors", vectors),
        ("switch", f"to {switch.model}: {describe_switch(switch)}" if switch else ""),
        (
            "formations",
            ", ".join(f"{n} {_STATES[state]}" for state, n in overview.formations.items()),
        ),
        ("held for review", describe_held(overview.held)),
        ("profile", run.loaded.profile or ""),
        ("settings", [str(path) for path in run.loaded.files]),
        *shared,
    ]


_AGENTS: list[Column[AgentOverview]] = [
    Column("agent", lambda a: a.username or a.agent_id, "text"),
    Column("scopes", lambda a: a.scopes, "number"),
    Column("facts", lambda a: a.facts, "number"),
    Column("pending", lambda a: a.pending, "number"),
    Column("texts", lambda a: a.texts, "number"),
    Column("due", lambda a: a.due, "number"),
]

#: Labels of the states of formations.
_STATES: dict[str, str] = {
    FormationStatus.CLAIMED: "running",
    FormationStatus.RECORDED: "recorded",
    FormationStatus.APPLIED: "applied",
    FormationStatus.RELEASED: "waiting",
    FormationStatus.FAILED: "failed",
    FormationStatus.SUPERSEDED: "superseded",
}

_FORMATIONS: list[Column[Formation]] = [
    Column("formation", lambda f: f.id, "id"),
    Column("state", lambda f: _STATES[f.status]),
    Column("when", lambda f: f.updated_at, "time"),
    Column("tries", lambda f: f.attempts, "number"),
    Column("error", lambda f: f.error, "text"),
]


# -- statistics ----------------------------------------------------------------------------------

#: Default period: as many weeks as fit on a screen.
_PERIOD = timedelta(weeks=12)


def stats(
    run: Invocation,
    agent: options.Agent = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Start of growth and cost.  [default: 12w]"),
    ] = None,
) -> None:
    """Show growth, use of facts, tokens and cost.

    \b
    edenmem stats
    edenmem stats --agent mira --since 30d --format json
    """
    now = utc_now()
    statistics = run.service.stats.gather(
        since=options.parse_when(since, "--since") or now - _PERIOD,
        now=now,
        agent_id=options.agent_id_of(run, agent),
    )
    if not run.out.data([statistics]):
        _show_statistics(run, statistics)


#: Days in the table of cost; the data contain all.
_LAST_DAYS = 14


def _show_statistics(run: Invocation, statistics: MemoryStatistics) -> None:
    from edenmem.engine.statistics import daily

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
            ("held for review", describe_held(statistics.held)),
        ]
    )
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
