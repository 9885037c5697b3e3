"""``edenmem cold``: form memories from idle sessions, from cron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.work.cold_views import one_round
from edenmem.cli.commands.work.schedule import (
    cold_job,
    crontab_line,
    environment_settings,
    systemd_service,
    systemd_timer,
)
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import ago, parse_duration
from edenmem.engine.scopes.references import Labels
from edenmem.errors import ConflictError, UsageError
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.ids import utc_now

app = group("Form memories from idle sessions, from cron.")


@app.command("run", cls=Command)
def run(
    ctx: typer.Context,
    agent: options.Agent = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=0, metavar="N", help="Process at most N sessions (0 = all)."
        ),
    ] = 0,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="TIME", help="Skip older sessions: 12h, 30d, 1y."),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            metavar="N",
            help="Sessions to process concurrently.  [default: cold.concurrency, 3]",
        ),
    ] = None,
    session_timeout: Annotated[
        str | None,
        typer.Option(
            "--session-timeout",
            metavar="TIME",
            help="Maximum duration per session: 90s, 10m.  [default: 10m]",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, metavar="N", help="Stop after N tokens."),
    ] = None,
    max_cost: Annotated[
        str | None,
        typer.Option("--max-cost", metavar="DOLLARS", help="Stop once this much has been spent."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="Interval of --watch.")
    ] = "10m",
    all_status: Annotated[
        bool,
        typer.Option(
            "--all-status", help="Include archived, finished, paused and running sessions."
        ),
    ] = False,
    include_formed: Annotated[
        bool,
        typer.Option("--include-formed", help="Include messages that the platform read."),
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Form memories from idle sessions, longest idle first.

    Processes new messages of active sessions and of sessions that edenmem stores. Safe to run at
    any interval and on several hosts at once: edenmem forms no message twice. In a database shared
    with the platform, formation.former decides who forms its sessions. --dry-run calls no model,
    and counts the sessions that each rule leaves out. After SIGTERM or Ctrl-C, the next run
    continues with unfinished sessions.

    Exit codes: 0 done, 1 some sessions failed, 2 invalid option or setting, 3 no such agent,
    4 a database index rejects facts, 5 provider or database unreachable, 130 interrupted.

    \b
    edenmem cold run --dry-run
    edenmem cold run --max-cost 2.50 --format json
    """
    this = invocation(ctx)
    _override(this, concurrency, session_timeout, max_tokens, max_cost)
    pause = parse_duration(every, "--every").total_seconds()
    age = parse_duration(max_age, "--max-age") if max_age else None
    from edenmem.engine.cold.runner import ColdOptions

    chosen = ColdOptions(
        agent_id=agent_id_of(this, agent),
        limit=limit or None,
        max_age=age,
        all_status=all_status,
        include_formed=include_formed,
        dry_run=dry_run,
    )
    if watch:
        this.refuse_output_file("--watch does not end")
    code = None
    while code is None:
        code = one_round(this, chosen, watch=watch, pause=pause)
    if code:
        raise typer.Exit(code)


def _override(
    run: Invocation,
    concurrency: int | None,
    session_timeout: str | None,
    max_tokens: int | None,
    max_cost: str | None,
) -> None:
    settings: dict[str, str] = {}
    if concurrency is not None:
        settings["cold.concurrency"] = str(concurrency)
    if session_timeout is not None:
        seconds = parse_duration(session_timeout, "--session-timeout").total_seconds()
        settings["cold.session_timeout_seconds"] = str(seconds)
    if max_tokens is not None:
        settings["llm.max_tokens"] = str(max_tokens)
    if max_cost is not None:
        try:
            if not 0 < float(max_cost) < float("inf"):
                raise ValueError
        except ValueError:
            raise UsageError(
                f"invalid --max-cost: {max_cost!r}", hint="an amount in US dollars, such as 2.50"
            ) from None
        settings["llm.max_cost"] = max_cost
    if settings:
        run.override(settings, _OPTION_OF)


#: The option of each setting that it overrides.
_OPTION_OF = {
    "cold.concurrency": "--concurrency",
    "cold.session_timeout_seconds": "--session-timeout",
    "llm.max_tokens": "--max-tokens",
    "llm.max_cost": "--max-cost",
}


@app.command("status", cls=Command)
def status(ctx: typer.Context, agent: options.Agent = None, limit: options.Limit = 50) -> None:
    """Show formations that are running, waiting for a retry, or failed.

    To list due sessions, use 'edenmem cold run --dry-run'.

    \b
    edenmem cold status --format json
    """
    run = invocation(ctx)
    found = run.service.cold.unfinished(agent_id_of(run, agent))
    run.out.listing(found, _columns(run), limit=limit, empty="nothing running, waiting or failed")
    counts = dict.fromkeys(("running", "abandoned", "waiting", "failed"), 0)
    for formation in found:
        counts[_state(formation)] += 1
    if found:
        run.out.note(", ".join(f"{count} {state}" for state, count in counts.items() if count))


def _state(formation: Formation) -> str:
    """Return the state; "abandoned" if its worker is gone and the next run continues it."""
    if formation.status is FormationStatus.FAILED:
        return "failed"
    if formation.status is FormationStatus.RELEASED:
        return "waiting"
    over = formation.lease_until is None or formation.lease_until <= utc_now()
    return "abandoned" if over else "running"


def _what(formation: Formation) -> str:
    """Return the worker, the time of the next attempt, and the error."""
    parts = [formation.worker, formation.error]
    if formation.not_before is not None and _state(formation) == "waiting":
        parts.insert(0, f"retry {ago(formation.not_before)}")
    return ": ".join(part for part in parts if part)


def _columns(run: Invocation) -> Callable[[Sequence[Formation]], list[Column[Formation]]]:
    def columns(formations: Sequence[Formation]) -> list[Column[Formation]]:
        agents = run.service.scopes.labels([formation.agent_id for formation in formations])
        sessions = {formation.session_id for formation in formations}
        labels = Labels(
            {
                session.id: session.label
                for session in map(run.service.host.session, sessions)
                if session
            }
        )
        return [
            Column("formation", lambda f: f.id, "id"),
            Column("session", lambda f: labels[f.session_id], "text"),
            Column("agent", lambda f: agents[f.agent_id]),
            Column("state", _state),
            Column("since", lambda f: f.updated_at, "time"),
            Column("step", lambda f: f.next_step or None),
            Column("tries", lambda f: f.attempts or None, "number"),
            Column("what", _what, "text"),
        ]

    return columns


@app.command("retry", cls=Command)
def retry(
    ctx: typer.Context,
    formations: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FORMATION]…", help="IDs or ID prefixes; see 'cold status'."),
    ] = None,
    every_one: Annotated[bool, typer.Option("--all", help="Retry all failed formations.")] = False,
    agent: options.Agent = None,
    dry_run: options.DryRun = False,
) -> None:
    """Retry failed formations in the next run; reset their attempts.

    \b
    edenmem cold retry --all
    """
    run = invocation(ctx)
    if formations and every_one:
        raise UsageError("FORMATION and --all exclude each other")
    if not formations and not every_one:
        raise Missing("FORMATION or --all", hint="list formations: edenmem cold status")
    if formations:
        chosen = [run.resolver.formation(text) for text in formations]
    else:
        chosen = run.service.cold.failed(agent_id_of(run, agent))
    results = [run.service.cold.retry(formation, dry_run=dry_run) for formation in chosen]
    from edenmem.engine.cold.sessions import RetryReport

    columns = [
        Column[RetryReport]("formation", lambda r: r.id, "id"),
        Column[RetryReport](
            "result", lambda r: r.why_not or ("would retry" if dry_run else "waiting")
        ),
    ]
    run.out.listing(results, columns, empty="no failed formations")
    if formations and not all(result.retried for result in results):
        raise ConflictError("some formations cannot be retried now")


def _parse_minutes(every: str) -> int:
    """Return an interval in minutes for a crontab; a bare number is minutes.

    Raises:
        UsageError: It is not 1 to 59 whole minutes.
    """
    text = f"{every}m" if every.isdecimal() else every
    minutes = parse_duration(text, "--every") / timedelta(minutes=1)
    if minutes not in range(1, 60):
        raise UsageError(f"invalid --every: {every!r}", hint="whole minutes, from 1m to 59m")
    return int(minutes)


@app.command("crontab", cls=Command)
def crontab(
    ctx: typer.Context,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="Interval between runs: 1m to 59m.")
    ] = "10m",
) -> None:
    """Print a crontab line, and a service and timer for systemd.

    They contain the current store, profile and configuration file, and never a secret.

    \b
    edenmem cold crontab
    edenmem cold crontab --every 5m
    """
    run = invocation(ctx)
    job = cold_job(run, minutes=_parse_minutes(every))
    parts = {
        "crontab": crontab_line(job) + "\n",
        "edenmem-cold.service": systemd_service(job),
        "edenmem-cold.timer": systemd_timer(job),
    }

    def show() -> None:
        for name, text in parts.items():
            place = "'crontab -e'" if name == "crontab" else f"~/.config/systemd/user/{name}"
            run.out.safe(f"# in {place}\n{text}")
        run.out.safe("# then: systemctl --user enable --now edenmem-cold.timer")

    run.out.report([parts], show, data=dict)
    if missing := environment_settings(run):
        run.out.note(
            "cron does not pass on environment variables; put these settings into a"
            f" configuration file with mode 0600: {', '.join(missing)}"
        )
