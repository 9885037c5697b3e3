"""``edenmem doctor``: check the store and its memory, and repair them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import OutputFormat, show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column
from edenmem.engine.doctor.report import (
    CATALOG,
    LEFT_OUT,
    Check,
    CheckResult,
    DoctorReport,
    FixReport,
    Repair,
    State,
    select_checks,
)
from edenmem.errors import ExitCode, UsageError
from edenmem.models.indexes import TrialStep
from edenmem.models.integrity import Finding
from edenmem.settings.paths import is_mongodb
from edenmem.text import many, one_line


def doctor(
    run: Invocation,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help="Only this check (repeatable)."),
    ] = None,
    agent: options.Agent = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Also run the checks that read all memory."),
    ] = False,
    online: Annotated[
        bool, typer.Option("--online", help="Also call the models (may cost).")
    ] = False,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Run all checks, show the plan, and repair what is safe."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --fix: only show the plan.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="List all checks, and which ones --fix repairs.")
    ] = False,
    atlas: Annotated[
        bool,
        typer.Option(
            "--atlas",
            help="Test search on the configured Atlas cluster, in a temporary collection.",
        ),
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Maximum duration of --atlas: 90s, 10m."),
    ] = "15m",
    yes: options.Yes = False,
) -> None:
    """Check the store and its memory, and make safe repairs.

    Changes nothing without --fix, which shows the plan first and logs repairs in 'edenmem log'.
    Checks that read every fact, vector or log entry run only with --full, --fix or --check NAME.
    --quiet prints only warnings and problems, for cron.

    Exit codes: 0 no warnings or problems, 1 warnings or problems, 5 database unreachable.

    --atlas creates a temporary collection with two search indexes on your cluster, runs every kind
    of search that edenmem uses, and removes the collection. Other collections are not touched.

    \b
    edenmem doctor
    edenmem doctor --full
    edenmem doctor --check buffers --check hashes --agent mira
    edenmem doctor --fix --dry-run
    edenmem doctor --atlas --uri "mongodb+srv://user@cluster.example/eden"
    """
    options.needs({"--dry-run": dry_run}, "--fix", fix, "without --fix nothing is changed")
    if atlas and (check or agent or full or online or fix or listed):
        raise UsageError("--atlas excludes all other checks")
    if listed:
        run.out.listing(list(CATALOG.values()), _CHECKS, data=lambda each: each._asdict())
        return
    if atlas:
        seconds = options.parse_duration(timeout, "--timeout").total_seconds()
        _try_atlas(run, seconds, yes=yes)
        return
    with (
        show_progress(run.out) as progress,
        run.service.doctor.open(
            select_checks(check or []),
            agent_id=options.agent_id_of(run, agent),
            full=full or fix or bool(check),
            online=online,
            files=run.loaded.files,
            progress=progress.say,
        ) as visit,
    ):
        report = visit.examine()
        plan = visit.plan(report)
        progress.pause()
        if fix and plan.repairs:
            _print_plan(run, plan)
            if dry_run or not confirm("Repair this?", yes=yes):
                if run.out.is_data:
                    _print_health(run, report, detailed=bool(check), repairs=plan)
                run.out.note("nothing was changed")
            else:
                done = visit.repair(plan)
                report = visit.examine_again(report, done)
                progress.pause()
                _print_repairs(run, done)
                _print_health(run, report, detailed=bool(check), repairs=done)
        else:
            _print_health(run, report, detailed=bool(check))
            if fix and not report.is_well:
                run.out.note("--fix repairs none of these")
    end_if(not report.reachable, ExitCode.UNAVAILABLE)
    end_if(not report.is_well)


#: State → mark and color.
_MARKS = {
    State.OK: ("\N{CHECK MARK}", "32"),
    State.UNTESTED: ("\N{EN DASH}", "2"),
    State.NOTE: ("\N{MIDDLE DOT}", "36"),
    State.WARNING: ("!", "33"),
    State.PROBLEM: ("\N{BALLOT X}", "31"),
    State.SKIPPED: ("\N{EN DASH}", "2"),
}
_INDENT = "      "
#: Width of the names of checks.
_NAME = max(map(len, CATALOG))
#: Maximum characters of the content of a finding.
_CONTENT = 200
#: Maximum number of examples of a note.
_OF_NOTES = 1


# -- the report --------------------------------------------------------------------------------


def _print_health(
    run: Invocation,
    report: DoctorReport,
    *,
    detailed: bool,
    repairs: FixReport | None = None,
) -> None:
    """Print all checks, or with ``--quiet`` only warnings and problems.

    ``detailed`` prints all examples of notes.
    """
    made = {repair.check: to_data(repair) for repair in repairs.repairs} if repairs else {}
    out, skipped = run.out, [each for each in report.checks if each.state is State.SKIPPED]
    if out.data(
        report.ill if run.quiet else report.checks,
        lambda check: to_data(check) | ({"repair": made.get(check.name)} if repairs else {}),
    ):
        return
    if out.format is OutputFormat.MARKDOWN:
        out.listing(report.ill if run.quiet else report.checks, _RESULTS)
        return
    shown = report.ill if run.quiet else [each for each in report.checks if each not in skipped]
    label = _labels(run, shown) if report.reachable else lambda finding: ""
    for number, (group, checks) in enumerate(groupby(shown, key=lambda check: check.group)):
        if number:
            out.line()
        out.heading(group.capitalize())
        for check in checks:
            _print_check(run, check, label, detailed=detailed)
    if not run.quiet:
        out.line()
        if skipped:
            why = skipped[-1].remark
            if why == LEFT_OUT:
                names = ", ".join(check.name for check in skipped)
                why = f"{names}; 'edenmem doctor --full' runs them"
            out.paragraph(f"skipped {many(len(skipped), 'check')}: ", why)
        out.line(out.advise(_summary(report)))


Labeler = Callable[[Finding], str]


def _print_check(run: Invocation, check: CheckResult, label: Labeler, *, detailed: bool) -> None:
    seen = f"{check.count:,} found" if check.count else check.remark or check.title
    is_provider = check.count == 1 and check.examples[0].target_type == "provider"
    if is_provider:
        seen = check.examples[0].detail
    title = f"  {run.out.style(*_MARKS[check.state])} {check.name.ljust(_NAME)}  "
    run.out.paragraph(title, seen, indent=_NAME + 6)
    if check.state in (State.OK, State.UNTESTED, State.SKIPPED):
        return
    run.out.paragraph(_INDENT, check.meaning)
    few = check.state is State.NOTE and not detailed
    if not is_provider:
        _print_examples(run, check.examples[: _OF_NOTES if few else None], check.count, label)
    run.out.paragraph(f"{_INDENT}> ", run.out.advise(check.remedy))


def _print_examples(
    run: Invocation, examples: Sequence[Finding], count: int, label: Labeler
) -> None:
    for finding in examples:
        run.out.paragraph(f"{_INDENT}- ", f"{_target(finding, label(finding))}: {finding.detail}")
        if finding.text.strip():
            content = one_line(finding.text, min(_CONTENT, run.out.width - len(_INDENT) - 4))
            run.out.line(f'{_INDENT}  "{content}"')
    if count > len(examples) > 0:
        run.out.line(f"{_INDENT}  and {count - len(examples):,} more")


def _target(finding: Finding, owner: str) -> str:
    """Return the target of a finding, by name or ID."""
    if finding.target_type == "scope" and owner:
        return owner
    if finding.target_type in ("place", "provider"):
        return finding.target_id
    return f"{finding.target_type} {finding.target_id}" + (f" ({owner})" if owner else "")


def _labels(run: Invocation, checks: Sequence[CheckResult | Repair]) -> Labeler:
    """Return a function from a finding to the name of its owner."""
    examples = [finding for check in checks for finding in check.examples]
    scopes = [finding.scope for finding in examples if finding.scope is not None]
    called = run.service.scopes.labels(scopes)
    return lambda finding: called.full(finding.scope) if finding.scope is not None else ""


def _summary(report: DoctorReport) -> str:
    counts = {
        state: sum(check.state is state for check in report.checks)
        for state in (State.PROBLEM, State.WARNING, State.NOTE)
    }
    parts = [many(count, str(state)) for state, count in counts.items() if count]
    if not report.reachable:
        return "the database is unreachable"
    if report.is_well:
        return ", ".join(["no problems", *parts])
    fixable = sum(check.fixable for check in report.ill)
    hint = f"; 'edenmem doctor --fix' repairs {fixable} of them" if fixable else ""
    return f"{', '.join(parts)}{hint}"


_RESULTS: list[Column[CheckResult]] = [
    Column("check", lambda check: check.name, "name"),
    Column("state", lambda check: check.state.value),
    Column("found", lambda check: check.count, "number"),
    Column("meaning", lambda check: check.meaning or check.remark or check.title, "text"),
    Column("remedy", lambda check: check.remedy, "text"),
]


# -- repairs -----------------------------------------------------------------------------------


def _print_plan(run: Invocation, plan: FixReport) -> None:
    """Print planned repairs."""
    if run.out.is_data or run.quiet:
        return
    run.out.heading("Plan")
    label = _labels(run, plan.repairs)
    for repair in plan.repairs:
        _print_repair(run, repair, f"{repair.found:,}: {repair.action}")
        _print_examples(run, repair.examples, repair.found, label)


def _print_repairs(run: Invocation, done: FixReport) -> None:
    """Print completed repairs."""
    if run.out.is_data or run.quiet:
        return
    run.out.heading("Repaired")
    for repair in done.repairs:
        left = repair.found - repair.repaired
        count = f"{repair.repaired:,}" + (f", {left:,} left" if left > 0 else "")
        _print_repair(run, repair, count)
        for reason in repair.refused:
            run.out.paragraph(f"{_INDENT}- ", reason)
    run.out.line(f"details: edenmem log --run {done.run_id}")
    run.out.line()


def _print_repair(run: Invocation, repair: Repair, text: str) -> None:
    run.out.paragraph(f"  {repair.check.ljust(_NAME)}  ", text)


# -- the catalog, and the trial on Atlas ---------------------------------------------------------

_CHECKS: list[Column[Check]] = [
    Column("check", lambda check: check.name, "name"),
    Column("on failure", lambda check: check.state.value),
    Column("--full", lambda check: check.full or None),
    Column("--fix", lambda check: check.fixable or None),
    Column("expectation", lambda check: check.title, "sentence"),
]


_STEPS: list[Column[TrialStep]] = [
    Column("test", lambda step: step.name),
    Column("outcome", lambda step: step.outcome),
    Column("seconds", lambda step: f"{step.seconds:.1f}", "number"),
    Column("result", lambda step: step.seen, "text"),
]


def _try_atlas(run: Invocation, seconds: float, *, yes: bool) -> None:
    """Test search on an Atlas cluster, and print the tests."""
    if not is_mongodb(run.settings.store.uri):
        raise UsageError(
            "--atlas needs a MongoDB cluster: the configured store is SQLite",
            hint="specify the cluster: edenmem doctor --atlas --uri URI",
        )
    run.confirm(
        f"Create a temporary collection and two search indexes in {run.service.setup.location}?",
        yes=yes,
        can_look=False,
        otherwise="nothing was tested",
    )
    out = run.out
    report = run.service.doctor.try_atlas(
        timeout=seconds, progress=lambda name: out.progress(f"testing: {name}")
    )
    if not out.data([report], lambda one: to_data(one) | {"passed": one.passed}):
        out.fields([("store", report.location), ("server", report.server_version)])
        out.listing(report.steps, _STEPS)
        failed = [step for step in report.steps if step.outcome == "failed"]
        for step in failed:
            out.paragraph(f"{step.name}: ", step.seen)
        if not report.removed:
            out.note(f"drop this temporary collection by hand: {report.collection}")
        out.line(f"{many(len(failed), 'test')} failed" if failed else "all tests passed")
    end_if(not report.passed)
