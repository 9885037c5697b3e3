"""Markdown folders: export, and import as a plan to confirm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import style
from edenmem.errors import ExitCode, UsageError
from edenmem.text import many, one_line, printable

if TYPE_CHECKING:
    from edenmem.engine.exchange.edits import ApplyReport, Edit, Plan
    from edenmem.engine.exchange.exporter import ExportRequest
    from edenmem.engine.exchange.folders import FileProblem

_SHOWN = 20


def export_folder(run: Invocation, request: ExportRequest, target: str, *, force: bool) -> None:
    """Write a folder, and print what it contains."""
    if target == "-":
        raise UsageError("Markdown needs a folder", hint="specify a folder instead of -")
    report = run.service.exchange.write_folder(Path(target), request, force=force)
    run.out.safe(
        f"wrote {many(report.files, 'file')} to {target}: {many(report.texts, 'text')},"
        f" {many(report.facts, 'fact')} and {many(report.reflections, 'pending reflection')}"
        f" of {many(report.scopes, 'scope')}"
    )
    if report.removed:
        run.out.note(f"removed {many(report.removed, 'outdated file')} of an earlier export")


def import_folder(
    run: Invocation, source: str, *, delete: bool, yes: bool, dry_run: bool, allow_long: bool
) -> None:
    """Show the edits in a folder, confirm, and apply them."""
    plan = run.service.exchange.plan_folder(Path(source), delete=delete)
    _show(run, plan)
    if not plan.files and not plan.problems:
        raise UsageError(f"no exported files in {source}", hint="see 'edenmem export --help'")
    if not plan.edits:
        run.out.note("nothing to change")
    report: ApplyReport | None = None
    run_id = run.actor.run_id or ""
    if plan.edits and not dry_run:
        if not confirm(f"Apply {many(len(plan.edits), 'change')}?", yes=yes):
            run.out.note("nothing was changed")
            return
        report = run.serve(
            lambda service: service.exchange.take_folder(plan.edits, allow_long=allow_long)
        )
    _report(run, plan, report, run_id)
    failed = len(plan.problems) + len(plan.conflicts) + len(report.refused if report else ())
    if failed:
        conflicts_only = len(plan.conflicts) == failed and not (report and report.done)
        raise typer.Exit(ExitCode.CONFLICT if conflicts_only else ExitCode.SOME_FAILED)


def _show(run: Invocation, plan: Plan) -> None:
    """Print the plan as diffs, and problems on stderr."""
    if run.out.is_data:
        return
    for edit in plan.edits:
        _show_edit(run, edit)
    for problem in plan.problems[:_SHOWN]:
        print_error(f"{_place(problem)}: {problem.reason}", None)
    for conflict in plan.conflicts[:_SHOWN]:
        print_error(
            f"{_place(conflict)}: {conflict.reason}; left unchanged",
            "export again, and repeat the edit",
        )
    left = max(0, len(plan.problems) - _SHOWN) + max(0, len(plan.conflicts) - _SHOWN)
    if left:
        print_error(f"{many(left, 'more problem')}", None)
    if plan.missing:
        run.out.note(f"{many(plan.missing, 'removed line')}; --delete deletes their memory")


def _show_edit(run: Invocation, edit: Edit) -> None:
    where = f"{edit.path}:{edit.line}" if edit.line else edit.path
    title = f"{edit.action} {edit.target.replace('consolidation', 'text')}"
    run.out.heading(f"{where}  {title}")
    if edit.target == "consolidation":
        old, new = f"version {edit.version}", "the file"
        show_diff(run.out, edit.before, edit.after, old=old, new=new, to_stdout=True)
        return
    color = run.out.is_colored(sys.stdout)
    for sign, text, code in (("-", edit.before, "31"), ("+", edit.after, "32")):
        for line in printable(text).splitlines():
            run.out.line(style(f"{sign} {line}", code, color))


def _place(problem: FileProblem) -> str:
    return one_line(f"{problem.path}:{problem.line}" if problem.line else problem.path)


def _report(run: Invocation, plan: Plan, report: ApplyReport | None, run_id: str) -> None:
    done = report.done if report else 0
    data: dict[str, Any] = to_data(plan) | {
        "dry_run": report is None,
        "done": done,
        "refused": [to_data(one) for one in report.refused] if report else [],
        "run_id": run_id if done else None,
    }
    run.out.report([data], lambda: _show_outcome(run, plan, report, run_id), data=dict)


def _show_outcome(run: Invocation, plan: Plan, report: ApplyReport | None, run_id: str) -> None:
    done = report.done if report else 0
    for refusal in report.refused if report else ():
        edit = refusal.edit
        where = f"{edit.path}:{edit.line}" if edit.line else edit.path
        print_error(one_line(f"{where}: {refusal.reason}"), refusal.hint)
    for notice in report.notices if report else ():
        run.out.note(notice)
    if report is not None:
        run.out.safe(f"applied {done:,} of {many(len(plan.edits), 'change')}")
        if done:
            run.out.note(f"to undo this run: edenmem undo --run {run_id}")
    elif plan.edits:
        run.out.note(f"would apply {many(len(plan.edits), 'change')}")
