"""How the findings of the doctor read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import OutputFormat
from edenmem.cli.terminal.tables import Column, style
from edenmem.engine.doctor.catalogue import CATALOGUE, Check
from edenmem.engine.doctor.report import CheckResult, DoctorReport, FixReport, Repair, State
from edenmem.engine.indexes.atlas_trial import AtlasReport, CheckStep
from edenmem.models.integrity import Finding
from edenmem.text import one_line

#: State → its mark, the mark where a terminal has no such signs, and its colour.
_MARKS = {
    State.OK: ("\N{CHECK MARK}", "32"),
    State.NOTE: ("\N{MIDDLE DOT}", "36"),
    State.WARNING: ("!", "33"),
    State.PROBLEM: ("\N{BALLOT X}", "31"),
    State.SKIPPED: ("\N{EN DASH}", "2"),
}
_INDENT = "      "
#: The longest name of a check.
_NAME = max(map(len, CATALOGUE))
#: Characters of a content that is shown beside a finding.
_CONTENT = 200
#: Examples of notes, which are not what one looks for.
_OF_NOTES = 1


# -- the report --------------------------------------------------------------------------------


def print_health(
    run: Invocation,
    report: DoctorReport,
    *,
    detailed: bool,
    repairs: FixReport | None = None,
) -> None:
    """Print every check; with ``--quiet`` only those with warnings and problems. ``detailed``:
    examples of notes too."""
    made = {repair.check: to_data(repair) for repair in repairs.repairs} if repairs else {}
    run.out.report(
        report.ill if run.quiet else report.checks,
        lambda: _show_health(run, report, detailed=detailed),
        data=lambda check: to_data(check) | ({"repair": made.get(check.name)} if repairs else {}),
    )


def _show_health(run: Invocation, report: DoctorReport, *, detailed: bool) -> None:
    if run.out.format is OutputFormat.MARKDOWN:
        run.out.listing(report.ill if run.quiet else report.checks, _RESULTS)
        return
    skipped = [check for check in report.checks if check.state is State.SKIPPED]
    shown = report.ill if run.quiet else [c for c in report.checks if c not in skipped]
    label = _labels(run, shown) if report.reachable else str
    for number, (group, checks) in enumerate(groupby(shown, key=lambda check: check.group)):
        if number:
            run.out.line()
        run.out.heading(group.capitalize())
        for check in checks:
            _print_check(run, check, label, detailed=detailed)
    if not run.quiet:
        run.out.line()
        if skipped:
            were = "check was" if len(skipped) == 1 else "checks were"
            run.out.paragraph(f"{len(skipped)} {were} not made: ", skipped[-1].remark)
        run.out.line(_summary(report))


def _print_check(
    run: Invocation, check: CheckResult, label: Callable[[Any], str], *, detailed: bool
) -> None:
    seen = f"{check.count:,} found" if check.count else check.remark or check.title
    title = f"  {_mark(run, check.state)} {check.name.ljust(_NAME)}  "
    run.out.paragraph(title, seen, indent=_NAME + 6)
    if check.state in (State.OK, State.SKIPPED):
        return
    run.out.paragraph(_INDENT, check.meaning)
    few = check.state is State.NOTE and not detailed
    _print_examples(run, check.examples[: _OF_NOTES if few else None], check.count, label)
    run.out.paragraph(f"{_INDENT}> ", check.remedy)


def _print_examples(
    run: Invocation, examples: Sequence[Finding], count: int, label: Callable[[Any], str]
) -> None:
    for finding in examples:
        run.out.paragraph(f"{_INDENT}- ", f"{_target(finding, label(finding))}: {finding.detail}")
        if finding.text.strip():
            content = one_line(finding.text, min(_CONTENT, run.out.width - len(_INDENT) - 4))
            run.out.line(f'{_INDENT}  "{content}"')
    if count > len(examples) > 0:
        run.out.line(f"{_INDENT}  and {count - len(examples):,} more")


def _target(finding: Finding, whose: str) -> str:
    """What a finding is about: in names where names say it all, else by its id."""
    if finding.target_type == "scope" and whose:
        return whose
    if finding.target_type in ("place", "provider"):
        return finding.target_id
    return f"{finding.target_type} {finding.target_id}" + (f" ({whose})" if whose else "")


def _mark(run: Invocation, state: State) -> str:
    sign, code = _MARKS[state]
    return style(sign, code, run.out.is_colored(sys.stdout))


def _labels(run: Invocation, checks: Sequence[CheckResult | Repair]) -> Callable[[Any], str]:
    """A function from a finding to whose it is, in names."""
    examples = [finding for check in checks for finding in check.examples]
    scopes = [finding.scope for finding in examples if finding.scope is not None]
    called = run.service.scopes.labels(scopes)

    def label(finding: Finding) -> str:
        return called.full(finding.scope) if finding.scope is not None else ""

    return label


def _summary(report: DoctorReport) -> str:
    counts = {
        state: sum(check.state is state for check in report.checks)
        for state in (State.PROBLEM, State.WARNING, State.NOTE)
    }
    told = [
        f"{count} {state}{'s' if count > 1 else ''}" for state, count in counts.items() if count
    ]
    if not report.reachable:
        return "the database cannot be reached"
    if report.is_well:
        return ", ".join(["all is well", *told])
    fixable = sum(check.fixable for check in report.ill)
    mend = f"; 'edenmem doctor --fix' mends {fixable} of them" if fixable else ""
    return f"{', '.join(told)}{mend}"


_RESULTS: list[Column[CheckResult]] = [
    Column("check", lambda check: check.name, "name"),
    Column("state", lambda check: check.state.value),
    Column("found", lambda check: check.count, "number"),
    Column("what", lambda check: check.meaning or check.remark or check.title, "text"),
    Column("what to do", lambda check: check.remedy, "text"),
]


# -- repairs -----------------------------------------------------------------------------------


def print_plan(run: Invocation, plan: FixReport) -> None:
    """Print what would be done."""
    if run.out.is_data or run.quiet:
        return
    run.out.heading("Plan")
    label = _labels(run, plan.repairs)
    for repair in plan.repairs:
        _print_repair(run, repair, f"{repair.found:,}: {repair.action}")
        _print_examples(run, repair.examples, repair.found, label)


def print_repairs(run: Invocation, done: FixReport) -> None:
    """Print what was done."""
    if run.out.is_data or run.quiet:
        return
    run.out.heading("Mended")
    for repair in done.repairs:
        left = repair.found - repair.repaired
        count = f"{repair.repaired:,}" + (f", {left:,} left" if left > 0 else "")
        _print_repair(run, repair, count)
        for reason in repair.refused:
            run.out.paragraph(f"{_INDENT}- ", reason)
    run.out.line(f"the run is {done.run_id}: 'edenmem log --run {done.run_id}' shows it")
    run.out.line()


def _print_repair(run: Invocation, repair: Repair, text: str) -> None:
    run.out.paragraph(f"  {repair.check.ljust(_NAME)}  ", text)


# -- the catalogue -----------------------------------------------------------------------------

_CHECKS: list[Column[Check]] = [
    Column("check", lambda check: check.name, "name"),
    Column("about", lambda check: check.group),
    Column("if not", lambda check: check.state.value),
    Column("--fix", lambda check: check.fixable or None),
    Column("what is so if all is well", lambda check: check.title, "text"),
]


def print_catalogue(run: Invocation) -> None:
    """Print what is checked."""
    run.out.listing(list(CATALOGUE.values()), _CHECKS, data=lambda check: {**check._asdict()})


# -- the trial on Atlas ------------------------------------------------------------------------

_STEPS: list[Column[CheckStep]] = [
    Column("tried", lambda step: step.name),
    Column("outcome", lambda step: step.outcome),
    Column("seconds", lambda step: f"{step.seconds:.1f}", "number"),
    Column("seen", lambda step: step.seen, "text"),
]


def print_atlas(run: Invocation, report: AtlasReport) -> None:
    """Print what was tried on a cluster."""
    run.out.report(
        [report],
        lambda: _show_atlas(run, report),
        data=lambda one: {**to_data(one), "passed": one.passed},
    )


def _show_atlas(run: Invocation, report: AtlasReport) -> None:
    run.out.fields([("store", report.location), ("server", report.server_version)])
    run.out.listing(report.steps, _STEPS)
    failed = [step for step in report.steps if step.outcome == "failed"]
    for step in failed:
        run.out.paragraph(f"{step.name}: ", step.seen)
    if not report.removed:
        run.out.note(f"drop it by hand: the collection {report.collection}")
    run.out.line(f"{len(failed)} failed" if failed else "everything is as edenmem needs it")
