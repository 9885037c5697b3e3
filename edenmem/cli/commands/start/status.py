"""``edenmem status``: the store at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import count_noun, describe_former, describe_held, dollars, token_count
from edenmem.cli.commands.indexes.embed import describe_switch
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column
from edenmem.engine.scopes.overview import AgentOverview, StoreOverview
from edenmem.errors import StoreError
from edenmem.models.formation import Formation, FormationStatus, UsageTotal
from edenmem.settings.paths import sqlite_path
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.cold.sessions import SharingReport


def status(ctx: typer.Context, agent: options.Agent = None) -> None:
    """Show the store, its size, due work and failures.

    \b
    edenmem status
    edenmem status --agent mira --format json
    """
    run = invocation(ctx)
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
    if overview.agents:
        run.out.line()
        run.out.listing(overview.agents, _AGENTS)
    else:
        run.out.note(options.NO_AGENTS)
    if overview.usage:
        periods = (
            ("today", [one.today for one in overview.usage]),
            ("7 days", [one.week for one in overview.usage]),
            ("all time", [one.ever for one in overview.usage]),
        )
        rows = [(period, total) for period, totals in periods for total in totals if total.calls]
        run.out.line()
        run.out.listing(rows, _USAGE)
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
            ("passed unread", many(sharing.unread, "message") if sharing.unread else ""),
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


_USAGE: list[Column[tuple[str, UsageTotal]]] = [
    Column("period", lambda row: row[0]),
    Column("model", lambda row: row[1].model, "text"),
    Column("calls", lambda row: row[1].calls, "number"),
    Column("tokens in", lambda row: token_count(row[1], row[1].input_tokens), "number"),
    Column("tokens out", lambda row: token_count(row[1], row[1].output_tokens), "number"),
    Column("US dollars", lambda row: dollars(row[1]), "number"),
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
