"""``edenmem cold``: form memories from idle sessions, from cron."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import counts, describe_former, facts_changed, token_count
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column, format_cost
from edenmem.errors import ConflictError, ExitCode, UsageError
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.settings.installation import own_command
from edenmem.settings.paths import FILE_NAME
from edenmem.text import ago, many

if TYPE_CHECKING:
    from edenmem.engine.cold.report import ColdFailure, ColdPlan, ColdReport, LeftOut
    from edenmem.engine.cold.runner import ColdOptions
    from edenmem.engine.cold.sessions import RetryReport
    from edenmem.engine.service import MemoryService


app = group("Form memories from idle sessions, from cron.")


@app.command("run", cls=Command)
def cold_run(
    run: Invocation,
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
    run.override(
        {
            "llm.max_tokens": ("--max-tokens", max_tokens),
            "llm.max_cost": ("--max-cost", max_cost),
        }
    )
    pause = options.parse_duration(every, "--every").total_seconds()
    age = options.parse_duration(max_age, "--max-age") if max_age else None
    from edenmem.engine.cold.runner import ColdOptions

    chosen = ColdOptions(
        agent_id=options.agent_id_of(run, agent),
        limit=limit or None,
        max_age=age,
        all_status=all_status,
        include_formed=include_formed,
        dry_run=dry_run,
    )
    if watch:
        run.refuse_output_file("--watch does not end")
    code = None
    while code is None:
        code = run_once(run, chosen, watch=watch, pause=pause)
    end_if(code, code)


@app.command("status", cls=Command)
def status(run: Invocation, agent: options.Agent = None, limit: options.Limit = 50) -> None:
    """Show formations that are running, waiting for a retry, or failed.

    To list due sessions, use 'edenmem cold run --dry-run'.

    \b
    edenmem cold status --format json
    """
    found = run.service.cold.unfinished(options.agent_id_of(run, agent))
    run.out.listing(found, _FORMATIONS, limit=limit, empty="nothing running, waiting or failed")
    if found:
        states = [_state(formation) for formation in found]
        named = ("running", "abandoned", "waiting", "failed")
        run.out.note(counts(*((states.count(state), state) for state in named)))


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


_FORMATIONS: list[Column[Formation]] = [
    Column("formation", lambda f: f.id, "id"),
    Column("session", lambda f: Scope.session(f.agent_id, f.session_id), "text", "owner"),
    Column("agent", lambda f: f.agent_id, names="account"),
    Column("state", _state),
    Column("since", lambda f: f.updated_at, "time"),
    Column("step", lambda f: f.next_step or None),
    Column("tries", lambda f: f.attempts or None, "number"),
    Column("what", _what, "text"),
]


@app.command("retry", cls=Command)
def retry(
    run: Invocation,
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
    options.exclusive({"FORMATION": formations, "--all": every_one})
    if not formations and not every_one:
        raise Missing("FORMATION or --all", hint="list formations: edenmem cold status")
    if formations:
        chosen = [run.resolver.formation(text) for text in formations]
    else:
        chosen = run.service.cold.failed(options.agent_id_of(run, agent))
    results = [run.service.cold.retry(formation, dry_run=dry_run) for formation in chosen]
    done = "would retry" if dry_run else "waiting"
    columns: list[Column[RetryReport]] = [
        Column("formation", lambda r: r.id, "id"),
        Column("result", lambda r: r.why_not or done),
    ]
    run.out.listing(results, columns, empty="no failed formations")
    if formations and not all(result.retried for result in results):
        raise ConflictError("some formations cannot be retried now")


@app.command("crontab", cls=Command)
def crontab(
    run: Invocation,
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
    length = options.parse_duration(f"{every}m" if every.isdecimal() else every, "--every")
    minutes = length / timedelta(minutes=1)
    if minutes not in range(1, 60):
        raise UsageError(f"invalid --every: {every!r}", hint="whole minutes, from 1m to 59m")
    words, folder = _scheduled_command(run)
    parts = {
        "crontab": _crontab_line(words, folder, int(minutes)),
        "edenmem-cold.service": _systemd_service(words, folder, run.settings.cold.grace_seconds),
        "edenmem-cold.timer": _SYSTEMD_TIMER.format(minutes=int(minutes)),
    }
    if not run.out.data([parts], dict):
        for name, text in parts.items():
            place = "'crontab -e'" if name == "crontab" else f"~/.config/systemd/user/{name}"
            run.out.safe(f"# in {place}\n{text}")
        run.out.safe("# then: systemctl --user enable --now edenmem-cold.timer")
    missing = [
        f"{key} ({origin})"
        for key, origin in run.loaded.origins.items()
        if origin in os.environ and origin != "EDENMEM_URI"
    ]
    if missing:
        run.out.note(
            "cron does not pass on environment variables; put these settings into a"
            f" configuration file with mode 0600: {', '.join(missing)}"
        )


_RULES: dict[str, str] = {
    "status": "not active (see --all-status)",
    "formed_by_platform": "read by the platform (see --include-formed)",
    "left_to_platform": "left to the platform (see formation.former)",
    "incognito": "incognito",
    "not_quiet": "not idle yet",
    "below_threshold": "below the threshold",
    "failed": "failed (see 'cold status')",
    "taken": "claimed by another worker",
    "waiting": "waiting for a retry",
    "max_age": "older than --max-age",
    "limit": "beyond --limit",
}

_LEFT_OUT: list[Column[LeftOut]] = [
    Column("skipped", lambda one: _RULES[one.rule]),
    Column("sessions", lambda one: one.sessions, "number"),
    Column("messages", lambda one: one.messages, "number"),
]


#: Reason for an early end → exit code.
_EXIT_CODES = {
    "interrupted": ExitCode.INTERRUPTED,
    "provider": ExitCode.UNAVAILABLE,
    "database": ExitCode.UNAVAILABLE,
    "configuration": ExitCode.USAGE,
    "conflict": ExitCode.CONFLICT,
}


def _exit_code(report: ColdReport) -> ExitCode:
    """Return the exit code of a run."""
    some_failed = ExitCode.SOME_FAILED if report.failed or report.timed_out else ExitCode.OK
    return _EXIT_CODES.get(report.stopped_early or "", some_failed)


def _print_report(run: Invocation, report: ColdReport, *, one_line: bool = False) -> None:
    """Print the report of a run; failures also go to stderr, for cron's mail."""
    out = run.out
    data = {**to_data(report), "tokens": report.tokens, "cost": report.cost}
    # Without a configuration no session was read, and the error says why.
    if not out.datum(data, dict, indent=0 if one_line else 2) and (
        report.stopped_early != "configuration"
    ):
        out.fields(_fields(report))
        if report.dry_run:
            out.listing(report.planned, _PLANNED, empty="nothing due")
            if report.left_out:
                out.listing(report.left_out, _LEFT_OUT)
    for failure in report.failed:
        print_error(f"{failure.session}: {failure.reason}", _what_follows(failure))
    if report.stopped_early == "budget":
        out.note(f"the run stopped early: {report.reason}; the next run continues")
    elif report.stopped_early not in (None, "interrupted"):
        print_error(f"the run stopped early: {report.reason}", report.hint)


def _what_follows(failure: ColdFailure) -> str | None:
    if failure.final:
        return f"retry with 'edenmem cold retry {failure.formation_id}'"
    if failure.not_before is not None:
        return f"failed {many(failure.attempts, 'time')}; next attempt {ago(failure.not_before)}"
    return None


def _fields(report: ColdReport) -> list[tuple[str, object]]:
    def messages(count: int, words: str = "") -> str | None:
        return many(count, "message") + words if count else None

    usage = [
        f"{total.model}: {many(total.calls, 'call')},"
        f" {token_count(total, total.input_tokens)} tokens in,"
        f" {token_count(total, total.output_tokens)} out"
        + (f", {format_cost(total.cost)}" if total.cost else "")
        for total in report.usage
    ]
    ranges = f"{many(report.formed, 'range')} of {many(report.messages, 'message')}"
    see = "(see 'edenmem doctor --check drafts')"
    return [
        ("considered", many(report.considered, "session")),
        ("former", describe_former(report.former) if report.former else None),
        ("formed", ranges if report.formed else None),
        ("unread before", messages(report.unread, " passed by the platform")),
        ("read twice", messages(report.read_twice, ", also by the platform")),
        ("cursors moved", report.advanced or None),
        ("completed", report.completed or None),
        ("facts", facts_changed(report)),
        ("reflections", report.reflections or None),
        ("texts", report.consolidations or None),
        ("texts waiting", counts((report.texts_waiting, see))),
        ("expired", f"{many(report.expired, 'fact')}, removed" if report.expired else None),
        (
            "forgotten",
            counts(
                (report.forgotten, "written again and removed"),
                (report.forgotten_left, "left (see 'edenmem doctor --check forgotten')"),
            ),
        ),
        ("notes expired", report.notes_removed or None),
        (
            "not reviewed",
            counts(
                (report.review_accepted, "stored as unconfirmed"),
                (report.review_dropped, "dropped"),
            ),
        ),
        ("not due", report.not_due or None),
        ("left to platform", messages(report.left_to_platform)),
        ("taken", counts((report.taken, "by other workers"))),
        ("waiting", counts((report.waiting, "for a retry"))),
        ("active again", report.active or None),
        ("incognito", report.incognito or None),
        (
            "skipped",
            counts(
                (report.sessions_left_out("status"), "by status (see --all-status)"),
                (report.sessions_left_out("limit"), "by --limit"),
                (report.sessions_left_out("max_age"), "by --max-age"),
            ),
        ),
        ("timed out", report.timed_out),
        ("given back", report.given_back),
        ("failed", len(report.failed) or None),
        ("models", usage),
        ("stopped", report.stopped_early),
        ("took", f"{report.duration:.1f} s"),
    ]


_PLANNED: list[Column[ColdPlan]] = [
    Column("session", lambda plan: plan.session, "text"),
    Column("agent", lambda plan: plan.agent_id, names="account"),
    Column("action", lambda plan: plan.work),
    Column("messages", lambda plan: plan.messages, "number"),
    Column("tokens", lambda plan: plan.tokens, "number"),
]


def run_once(
    run: Invocation, chosen: ColdOptions, *, watch: bool = False, pause: float = 0
) -> ExitCode | None:
    """Run once and return the exit code; with ``watch``, wait and return None to repeat."""

    async def work(service: MemoryService) -> ExitCode | None:
        stop = asyncio.Event()
        with _handle_signals(stop.set):  # a signal may arrive while the report is printed
            with show_progress(run.out) as progress:
                progress.say("looking for idle sessions")
                report = await service.cold.run(
                    chosen,
                    stop=stop,
                    progress=lambda tally: progress.say(
                        f"{many(tally.considered, 'session')}, {tally.formed:,} formed,"
                        f" {tally.not_due:,} not due, {len(tally.failed):,} failed"
                    ),
                )
                left_out = None
                # This reads all sessions, which is too slow for every run of cron.
                done = (report.formed, report.completed, report.failed, report.timed_out)
                is_idle = not any((*done, report.given_back, report.dry_run, report.stopped_early))
                if run.out.is_screen and not watch and is_idle:
                    counted = replace(chosen, dry_run=True)
                    look = await service.cold.run(counted, stop=stop, progress=lambda tally: None)
                    left_out = look.left_out
            _print_report(run, report, one_line=watch)
            if left_out:
                minutes = run.settings.cold.quiet_minutes
                run.out.listing(left_out, _LEFT_OUT)
                run.out.note(
                    f"nothing was formed: a session is idle after {minutes} minutes without a"
                    " message (cold.quiet_minutes)"
                )
            elif left_out is not None:
                run.out.note("nothing was formed: no session has new messages")
            if not watch or report.stopped_early == "interrupted":
                return _exit_code(report)
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                return None
        return ExitCode.OK  # stopped while idle

    return run.serve(work, llm=not chosen.dry_run)


@contextmanager
def _handle_signals(act: Callable[[], None]) -> Iterator[None]:
    """Call a function on SIGTERM and Ctrl-C."""
    loop, names = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    with suppress(NotImplementedError):  # on Windows Ctrl-C cancels, without loss
        for name in names:
            loop.add_signal_handler(name, act)
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            for name in names:
                loop.remove_signal_handler(name)


# -- schedules -----------------------------------------------------------------------------------

#: Escapes in unit files: "%" begins a specifier and "$" a variable.
_SYSTEMD = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
_SAFE_FOR_SYSTEMD = frozenset(f"{ascii_letters}{digits}-_./:=@")


def _scheduled_command(run: Invocation) -> tuple[list[str], Path | None]:
    """Return a cold run with the store and settings of this command, and its folder, or None.

    Raises:
        UsageError: The command line would contain a password or a line break.
    """
    named = run.config or os.environ.get("EDENMEM_CONFIG")
    config = run.loaded.files[0] if named else None
    words = [*own_command(), "cold", "run", "--quiet", *run.options_elsewhere(config)]
    if any(not word.isprintable() for word in words):
        raise UsageError("a crontab cannot contain line breaks or control characters")
    here = Path.cwd()
    is_local = not named and here / FILE_NAME in run.loaded.files
    return words, here if is_local else None


def _crontab_line(words: Sequence[str], folder: Path | None, minutes: int) -> str:
    """Return a crontab line; cron reads an unescaped "%" as a line break, even in quotes."""
    command = shlex.join(words)
    if folder is not None:
        command = f"cd {shlex.quote(str(folder))} && {command}"
    return f"*/{minutes} * * * * {command} >/dev/null".replace("%", r"\%") + "\n"


def _systemd_service(words: Sequence[str], folder: Path | None, grace_seconds: int) -> str:
    """Return a systemd service for one run."""
    directory = f"WorkingDirectory={str(folder).replace('%', '%%')}\n" if folder else ""
    command = " ".join(
        word if word and set(word) <= _SAFE_FOR_SYSTEMD else f'"{word.translate(_SYSTEMD)}"'
        for word in words
    )
    return (
        "[Unit]\n"
        "Description=edenmem: form memories from idle sessions\n\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"{directory}"
        f"ExecStart={command}\n"
        f"TimeoutStopSec={grace_seconds + 20}\n"
        "UMask=0077\n"
    )


#: A systemd timer for the service.
_SYSTEMD_TIMER = """\
[Unit]
Description=edenmem: form memories from idle sessions

[Timer]
OnBootSec=2min
OnUnitInactiveSec={minutes}min
RandomizedDelaySec=30s

[Install]
WantedBy=timers.target
"""
