"""Progress and reports of cold runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.views import describe_former, token_count
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.money import format_cost
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import ago
from edenmem.errors import ExitCode
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.cold.report import ColdFailure, ColdPlan, ColdReport, LeftOut, Tally
    from edenmem.engine.cold.runner import ColdOptions
    from edenmem.engine.service import MemoryService


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


def describe_tally(tally: Tally) -> str:
    """Describe the progress of a run."""
    return (
        f"{many(tally['considered'], 'session')}, {tally['formed']:,} formed,"
        f" {tally['not_due']:,} not due, {len(tally.failed):,} failed"
    )


def exit_code(report: ColdReport) -> ExitCode:
    """Return the exit code of a run."""
    match report.stopped_early:
        case "interrupted":
            return ExitCode.INTERRUPTED
        case "provider" | "database":
            return ExitCode.UNAVAILABLE
        case "configuration":
            return ExitCode.USAGE
        case "conflict":
            return ExitCode.CONFLICT
    if report.failed or report.timed_out:
        return ExitCode.SOME_FAILED
    return ExitCode.OK


def print_report(run: Invocation, report: ColdReport, *, one_line: bool = False) -> None:
    """Print the report of a run; failures also go to stderr, for cron's mail."""
    run.out.stream_report(_data(report), lambda: _show_report(run, report), more=one_line)
    for failure in report.failed:
        print_error(f"{failure.session}: {failure.reason}", _what_follows(failure))
    if report.stopped_early and report.stopped_early not in ("interrupted", "budget"):
        print_error(f"the run stopped early: {report.reason}", report.hint)
    elif report.stopped_early == "budget":
        run.out.note(f"the run stopped early: {report.reason}; the next run continues")


def _show_report(run: Invocation, report: ColdReport) -> None:
    if report.stopped_early == "configuration":
        return  # no session was read; the error says why
    run.out.fields(_fields(report))
    if report.dry_run:
        run.out.listing(report.planned, _build_plan_columns(run), empty="nothing due")
        if report.left_out:
            run.out.listing(report.left_out, _LEFT_OUT)


def _data(report: ColdReport) -> dict[str, object]:
    return {**to_data(report), "tokens": report.tokens, "cost": report.cost}


def _what_follows(failure: ColdFailure) -> str | None:
    if failure.final:
        return f"retry with 'edenmem cold retry {failure.formation_id}'"
    if failure.not_before is not None:
        return f"failed {many(failure.attempts, 'time')}; next attempt {ago(failure.not_before)}"
    return None


def _describe_swept(report: ColdReport) -> str | None:
    found = (
        (report.forgotten, "written again and removed"),
        (report.forgotten_left, "left (see 'edenmem doctor --check forgotten')"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in found if count) or None


def _describe_waiting(texts: int) -> str | None:
    return f"{texts:,} (see 'edenmem doctor --check drafts')" if texts else None


def _fields(report: ColdReport) -> list[tuple[str, object]]:
    facts = (("+", report.facts_added), ("~", report.facts_revised), ("-", report.facts_removed))
    left_out = (
        (report.left_out_by_status, "by status (see --all-status)"),
        (report.left_out_by_limit, "by --limit"),
        (report.left_out_by_age, "by --max-age"),
    )
    usage = [
        f"{total.model}: {many(total.calls, 'call')},"
        f" {token_count(total, total.input_tokens)} tokens in,"
        f" {token_count(total, total.output_tokens)} out"
        + (f", {format_cost(total.cost)}" if total.cost else "")
        for total in report.usage
    ]
    return [
        ("considered", many(report.considered, "session")),
        ("former", describe_former(report.former) if report.former else None),
        ("formed", _ranges(report.formed, report.messages)),
        ("unread before", _unread(report.unread)),
        ("read twice", _read_twice(report.read_twice)),
        ("cursors moved", report.advanced or None),
        ("completed", report.completed or None),
        ("facts", " ".join(f"{sign}{count}" for sign, count in facts if count)),
        ("reflections", report.reflections or None),
        ("texts", report.consolidations or None),
        ("texts waiting", _describe_waiting(report.texts_waiting)),
        ("forgotten", _describe_swept(report)),
        ("not due", report.not_due or None),
        ("left to platform", _messages(report.left_to_platform)),
        ("taken", f"{report.taken} by other workers" if report.taken else None),
        ("waiting", f"{report.waiting} for a retry" if report.waiting else None),
        ("active again", report.active or None),
        ("incognito", report.incognito or None),
        ("skipped", ", ".join(f"{count:,} {why}" for count, why in left_out if count)),
        ("timed out", list(report.timed_out)),
        ("given back", list(report.given_back)),
        ("failed", len(report.failed) or None),
        ("models", usage),
        ("stopped", report.stopped_early),
        ("took", f"{report.duration:.1f} s"),
    ]


def _messages(count: int) -> str | None:
    return many(count, "message") if count else None


def _unread(count: int) -> str | None:
    return f"{many(count, 'message')} passed by the platform" if count else None


def _read_twice(count: int) -> str | None:
    return f"{many(count, 'message')}, also by the platform" if count else None


def _ranges(count: int, messages: int) -> str | None:
    if not count:
        return None
    return f"{many(count, 'range')} of {many(messages, 'message')}"


def _build_plan_columns(run: Invocation) -> Callable[[object], list[Column[ColdPlan]]]:
    def columns(plans: object) -> list[Column[ColdPlan]]:
        assert isinstance(plans, list | tuple)
        agents = run.service.scopes.labels([plan.agent_id for plan in plans])
        return [
            Column("session", lambda plan: plan.session, "text"),
            Column("agent", lambda plan: agents[plan.agent_id]),
            Column("action", lambda plan: plan.work),
            Column("messages", lambda plan: plan.messages, "number"),
            Column("tokens", lambda plan: plan.tokens, "number"),
        ]

    return columns


def one_round(
    run: Invocation, chosen: ColdOptions, *, watch: bool, pause: float
) -> ExitCode | None:
    """Run once and return the exit code; with ``watch``, wait and return None to repeat."""

    async def work(service: MemoryService) -> ExitCode | None:
        stop = asyncio.Event()
        with _Signals(stop.set):  # a signal may arrive while the report is printed
            with show_progress(run.out) as progress:
                progress.say("looking for idle sessions")
                report = await service.cold.run(
                    chosen,
                    stop=stop,
                    progress=lambda tally: progress.say(describe_tally(tally)),
                )
                left_out = None
                # This reads all sessions, which is too slow for every run of cron.
                if run.out.is_screen and not watch and _is_idle(report):
                    counted = msgspec.structs.replace(chosen, dry_run=True)
                    look = await service.cold.run(counted, stop=stop, progress=lambda tally: None)
                    left_out = look.left_out
            print_report(run, report, one_line=watch)
            if left_out is not None:
                _print_idle(run, left_out)
            if not watch or report.stopped_early == "interrupted":
                return exit_code(report)
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                return None
        return ExitCode.OK  # stopped while idle

    return run.serve(work, llm=not chosen.dry_run)


def _is_idle(report: ColdReport) -> bool:
    """Return whether a complete run had nothing to do."""
    done = (report.formed, report.completed, report.failed, report.timed_out, report.given_back)
    return not (any(done) or report.dry_run or report.stopped_early)


def _print_idle(run: Invocation, left_out: Sequence[LeftOut]) -> None:
    """Print why nothing was formed."""
    if left_out:
        run.out.listing(left_out, _LEFT_OUT)
    minutes = run.settings.cold.quiet_minutes
    run.out.note(
        f"nothing was formed: a session is idle after {minutes} minutes without a message"
        " (cold.quiet_minutes)"
    )


class _Signals:
    """Context in which SIGTERM and Ctrl-C call a function."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # on Windows Ctrl-C cancels, without loss
                loop.add_signal_handler(name, self._act)

    def __exit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                loop.remove_signal_handler(name)
