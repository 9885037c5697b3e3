"""``edenmem import``: read memory from a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.files import file_name, name_file
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column, style
from edenmem.engine.exchange.kinds import FileKind
from edenmem.errors import ExitCode, UsageError, line_place
from edenmem.text import many, one_line, printable

if TYPE_CHECKING:
    from edenmem.engine.exchange.edits import ApplyReport, Edit, Plan
    from edenmem.engine.exchange.folders import FileProblem
    from edenmem.engine.exchange.importer import RestoreReport
    from edenmem.engine.reports import ImportReport

#: Maximum number of problems to print.
_SHOWN = 10
#: Outcomes of records, in the order of the columns.
_WORDS = ("added", "replaced", "same", "differs", "kept", "refused", "left out")


class _OnConflict(StrEnum):
    KEEP = "keep"
    REPLACE = "replace"
    FAIL = "fail"


def import_(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Backup, JSON Lines, conversations, or memories of mem0 (also gzipped, - = stdin),"
            " or a folder of Markdown.",
        ),
    ],
    kind: Annotated[
        FileKind | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help="Read the file as records, sessions, mem0 or notes.  [default: as it looks]",
        ),
    ] = None,
    on_conflict: Annotated[
        _OnConflict,
        typer.Option(
            "--on-conflict",
            metavar="HOW",
            help="For records that differ: keep the stored one, replace it, or fail.",
        ),
    ] = _OnConflict.KEEP,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Import the valid lines only (exit 1).")
    ] = False,
    allow_incomplete: Annotated[
        bool,
        typer.Option("--allow-incomplete", help="Import the readable part of a damaged backup."),
    ] = False,
    allow_long: options.AllowLong = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Markdown: delete entries whose lines were removed.")
    ] = False,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="USER",
            help="Owner of agents and sessions without one (MongoDB).",
        ),
    ] = None,
    agent: options.Agent = None,
    user: options.User = None,
    add_missing: Annotated[
        bool, typer.Option("--add-missing", help="Add unknown users, and agents of conversations.")
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Import a backup, JSON Lines, conversations, edited Markdown, or memories of mem0.

    Says what the file contains, and checks all of it first. Existing records are kept; differing
    ones are reported, and replaced only with --on-conflict replace. Importing again changes
    nothing, adds only new messages, and completes an interrupted import. A truncated or altered
    backup is refused. A full backup restores its history; other records are new changes that
    'undo --run' can revert. --agent and --user are the defaults for memories of mem0 without them.

    A minimal record, and a conversation:
    {"type": "fact", "agent": "mira", "scope": "user", "user": "lena", "content": "…"}
    {"session": "first-visit", "agent": "mira", "users": ["lena"], "messages": [{"role": "user",
    "name": "lena", "content": "Hi!", "created_at": "2026-11-02T09:14:00Z"}]}
    For all fields, see 'edenmem help --guide import'.

    \b
    edenmem import sessions.jsonl --add-missing
    edenmem import backup.jsonl.gz --dry-run
    edenmem import memories.json --agent mira --add-missing
    edenmem import notes
    """
    run = invocation(ctx)
    if source != "-" and Path(source).is_dir():
        kind = FileKind.NOTES
    if kind is FileKind.NOTES:
        import_folder(run, source, delete=delete, yes=yes, dry_run=dry_run, allow_long=allow_long)
        return
    if delete:
        raise UsageError("--delete needs a folder of Markdown")
    from edenmem.engine.exchange.files import Source

    from_pipe = source == "-"
    opened = Source.spool(sys.stdin.buffer, "stdin") if from_pipe else Source.open_file(source)
    with opened as file, name_file(source), show_progress(run.out) as progress:
        exchange = run.service.exchange
        kind = kind or exchange.kind_of(file)
        run.out.note(f"{file_name(source)}: {kind.words}")
        if kind is not FileKind.MEM0 and (agent or user):
            raise UsageError("--agent and --user apply to memories of mem0 only")
        if kind is FileKind.SESSIONS:
            sessions = run.service.sessions.import_lines(
                file.rewind(),
                skip_bad=skip_bad,
                add_missing=add_missing,
                dry_run=dry_run,
                owner=owner,
            )
            print_sessions(run, sessions, source, dry_run=dry_run)
            is_complete = not sessions.problems
        else:
            if kind is FileKind.RECORDS and add_missing:
                raise UsageError("--add-missing applies to conversations and mem0 only")
            report = exchange.importer.take(
                exchange.read_mem0(file, agent=agent, user=user, add_missing=add_missing)
                if kind is FileKind.MEM0
                else file,
                on_conflict=on_conflict.value,
                skip_bad=skip_bad,
                allow_incomplete=allow_incomplete,
                allow_long=allow_long,
                owner=owner,
                dry_run=dry_run,
                progress=progress.step,
            )
            print_import(run, report, file_name(source))
            is_complete = not (report.failed or report.differing or report.damage)
    if not is_complete:
        raise typer.Exit(ExitCode.SOME_FAILED)


# -- records and conversations ---------------------------------------------------------------------


def print_import(run: Invocation, report: RestoreReport, file: str) -> None:
    """Print the outcomes of an import; problems and differences go to stderr."""
    rows = list(report.counts.items())
    used = [w for w in _WORDS if any(counts.get(w) for _, counts in rows)]
    problems = [{"line": line, "reason": reason} for line, reason in report.problems]
    run.out.report(
        [report],
        lambda: run.out.listing(
            rows,
            _columns(used),
            empty="no valid lines" if report.failed else "the file is empty",
        ),
        data=lambda one: to_data(one) | {"problems": problems},
    )
    if rows and not report.failed and set(used) == {"same"}:
        total = sum(counts["same"] for _, counts in rows)
        exist = "1 record exists" if total == 1 else f"all {total:,} records exist"
        run.out.note(f"nothing to import: {exist} already")
    if report.damage:
        print_error(f"the file is damaged: {report.damage}", None)
    for line, reason in report.problems[:_SHOWN]:
        problem = f"{line_place(line, file, report.unit)}: {reason}"
        if problem != report.damage:
            print_error(problem, None)
    if report.failed > _SHOWN:
        print_error(f"{many(report.failed - _SHOWN, 'more line')} could not be imported", None)
    for conflict in report.conflicts[:_SHOWN]:
        place = line_place(conflict.line, file, report.unit)
        print_error(f"{place}: {conflict.type} {conflict.id}: {conflict.detail}", None)
    if report.differing:
        more = f" ({report.differing - _SHOWN:,} more)" if report.differing > _SHOWN else ""
        print_error(
            f"kept stored versions of records that differ: {report.differing:,}{more}",
            "use --on-conflict replace for the versions of the file; replaced ones stay in history",
        )
    for reason, count in report.vectors_left_out.items():
        run.out.note(f"skipped {many(count, 'vector')}: {reason}")
    if report.without_vector:
        run.out.note(
            f"{many(report.without_vector, 'fact')} without a vector: run 'edenmem embed backfill'"
        )
    if report.run_id and not report.dry_run:
        run.out.note(f"to undo this run: edenmem undo --run {report.run_id}")


def print_sessions(
    run: Invocation, report: ImportReport, file: str, *, dry_run: bool = False
) -> None:
    """Print the result of an import; invalid lines go to stderr."""
    for number, problem in report.problems:
        run.out.note(f"{line_place(number, file_name(file))}: {problem}")
    if kept := report.owners_kept:
        run.out.note(f"owners of {many(kept, 'existing session')} left unchanged")

    def show() -> None:
        run.out.line(
            f"{'would import' if dry_run else 'imported'} {report.new_sessions} of "
            f"{many(report.sessions, 'session')}, {report.new_messages} of"
            f" {many(report.messages, 'message')}"
        )
        for what, added in (("agents", report.agents_added), ("users", report.users_added)):
            if added:
                run.out.fields([(f"  {what} added", list(added))])

    run.out.report([report], show, data=lambda one: to_data(one) | {"dry_run": dry_run})
    if report.new_messages and not dry_run:
        run.out.note("next: form memories from them with 'edenmem cold run'")


def _columns(words: list[str]) -> list[Column[tuple[str, dict[str, int]]]]:
    def count(word: str) -> Callable[[tuple[str, dict[str, int]]], int]:
        return lambda row: row[1].get(word, 0)

    return [
        Column("type", lambda row: row[0]),
        *(Column(word, count(word), "number") for word in words),
    ]


# -- Markdown ------------------------------------------------------------------------------------


def import_folder(
    run: Invocation, source: str, *, delete: bool, yes: bool, dry_run: bool, allow_long: bool
) -> None:
    """Show the edits in a folder, confirm, and apply them."""
    plan = run.service.exchange.plan_folder(Path(source), delete=delete)
    _show_plan(run, plan)
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


def _show_plan(run: Invocation, plan: Plan) -> None:
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
