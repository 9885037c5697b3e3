"""``edenmem import``: read memory from a file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_agent
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.files import file_name, name_file
from edenmem.cli.terminal.progress import Progress, show_progress
from edenmem.cli.terminal.prompts import ask_text, confirm, person_is_there
from edenmem.cli.terminal.tables import Column, style
from edenmem.engine.exchange.kinds import FileKind
from edenmem.errors import ExitCode, InputError, UsageError, line_place
from edenmem.models.scope import ScopeKind
from edenmem.text import many, one_line, printable

if TYPE_CHECKING:
    from edenmem.engine.exchange.conversion import Conversion, Defaults, Survey
    from edenmem.engine.exchange.edits import ApplyReport, Edit, Plan
    from edenmem.engine.exchange.files import Source
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


def import_(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Backup, JSON Lines, chats, or memory of another system (also gzipped, zip, or"
            " - = stdin), or a folder of Markdown.",
        ),
    ],
    kind: Annotated[
        FileKind | None,
        typer.Option(
            "--as",
            metavar="KIND",
            help=f"Read the file as {', '.join(FileKind)}.  [default: detected]",
        ),
    ] = None,
    on_conflict: Annotated[
        _OnConflict,
        typer.Option(
            "--on-conflict",
            metavar="HOW",
            help="For records that differ: keep the stored one, or replace it.",
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
    scope: Annotated[
        ScopeKind | None,
        typer.Option(
            "--scope",
            metavar="KIND",
            help="For facts without a user: user, or agent to share them with everyone.",
        ),
    ] = None,
    add_missing: Annotated[
        bool, typer.Option("--add-missing", help="Add unknown agents and users.")
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Import a backup, JSON Lines, chats, Markdown, or the memory of another system.

    Says what the file contains, what is left out, and checks all of it before anything is stored.
    Existing records are kept; differing ones are reported, and replaced only with --on-conflict
    replace. Importing again changes nothing, adds only what is new, and completes an interrupted
    import. A truncated or altered backup is refused. A full backup restores its history; other
    records are new changes that 'undo --run' can revert. --agent and --user are the defaults for
    files that do not name them; on a terminal, the command asks.

    It reads exports of ChatGPT and Claude, lists of messages, mem0, OpenMemory, the MCP memory
    server, agent files of Letta, episodes of Graphiti and Zep, and folders of notes. From other
    systems, secrets, orders to the agent, duplicates, and expired items are left out; --dry-run
    names them.

    A minimal record, and a conversation:
    {"type": "fact", "agent": "mira", "scope": "user", "user": "lena", "content": "…"}
    {"session": "first-visit", "agent": "mira", "users": ["lena"], "messages": [{"role": "user",
    "name": "lena", "content": "Hi!", "created_at": "2026-11-02T09:14:00Z"}]}
    For all formats and fields, see 'edenmem help --guide import'.

    \b
    edenmem import sessions.jsonl --add-missing
    edenmem import backup.jsonl.gz --dry-run
    edenmem import chatgpt.zip --agent mira --user lena --add-missing
    edenmem import memories.json --agent mira --dry-run
    """
    run = invocation(ctx)
    if scope not in (None, ScopeKind.USER, ScopeKind.AGENT):
        raise UsageError(f"--scope must be user or agent, not {scope}")
    path = Path(source)
    if source != "-" and path.is_dir():
        kind = FileKind.NOTES
    exchange = run.service.exchange
    if kind is FileKind.NOTES and (not path.exists() or delete or exchange.is_export(path)):
        import_folder(run, source, delete=delete, yes=yes, dry_run=dry_run, allow_long=allow_long)
        return
    if delete:
        raise UsageError("--delete needs a folder of Markdown")
    from edenmem.engine.exchange.conversion import Defaults

    with ExitStack() as opened, name_file(source), show_progress(run.out) as progress:
        file = _open(source, opened)
        kind = kind or exchange.kind_of(file)
        run.out.note(f"{file_name(source)}: {kind.words}")
        take = partial(
            exchange.importer.take,
            on_conflict=on_conflict.value,
            skip_bad=skip_bad,
            allow_incomplete=allow_incomplete,
            allow_long=allow_long,
            owner=owner,
            dry_run=dry_run,
            progress=progress.step,
        )
        if kind is FileKind.RECORDS:
            if agent or user or scope or add_missing:
                raise UsageError(
                    "records name their scope: omit --agent, --user, --scope and --add-missing"
                )
            reports = Reports(facts=take(file))
        else:
            given = Defaults(
                agent=agent, user=user, shared=scope is ScopeKind.AGENT, add_missing=add_missing
            )
            file = path if kind is FileKind.NOTES else file
            found = _convert(run, file, kind, opened, given, progress)
            survey = found.survey
            if not survey.facts and path.is_dir():
                raise UsageError(f"no notes in {source}", hint="name a file in it to import that")
            if survey.damage and not skip_bad:
                raise InputError(
                    f"{file_name(source)}: {survey.damage}",
                    hint="nothing was changed; import the readable part with --skip-bad",
                )
            reports = Reports(survey=survey, unit=found.chats.unit)
            if found.facts.count or (not kind.has_chats and not found.chats.count):
                reports.facts = take(found.facts, allow_long=True)
            if found.chats.count or kind.has_chats:
                reports.chats = run.service.sessions.import_lines(
                    found.chats,
                    skip_bad=skip_bad,
                    add_missing=found.defaults.add_missing,
                    dry_run=dry_run,
                    owner=owner,
                    progress=progress.step,
                )
        progress.pause()
        reports.print(run, source, dry_run=dry_run)
    if not reports.is_complete:
        raise typer.Exit(ExitCode.SOME_FAILED)


def _open(source: str, opened: ExitStack) -> Any:
    """Open a file; of a folder, return the path."""
    from edenmem.engine.exchange.files import Source

    if source == "-":
        return opened.enter_context(Source.spool(sys.stdin.buffer, "stdin"))
    path = Path(source)
    return path if path.is_dir() else opened.enter_context(Source.open_file(source))


# -- what comes ------------------------------------------------------------------------------------


def _convert(
    run: Invocation,
    source: Source | Path,
    kind: FileKind,
    opened: ExitStack,
    given: Defaults,
    progress: Progress,
) -> Conversion:
    """Convert a file, say what it has, and ask for what it does not say."""
    exchange = run.service.exchange
    convert = partial(exchange.convert, source, kind, opened, progress=progress.step)
    agents = list(islice(run.service.host.agents(), 2))
    if given.agent is None and len(agents) == 1:
        given = replace(given, agent=agents[0].username)
    found = convert(given)
    progress.pause()
    survey, defaults = found.survey, given
    _print_survey(run, survey, found.facts.unit, unknown="new" if given.add_missing else "unknown")
    if survey.without_agent:
        hint = "name the agent they are for; --add-missing adds it"
        name = (
            choose_agent(run, None).username if agents else ask_text("agent", "--agent", hint=hint)
        )
        defaults = replace(defaults, agent=name)
    if survey.without_user:
        share = "" if survey.sessions else ", or share it with everyone: --scope agent"
        hint = f"{many(survey.without_user, 'item')} without a user: say whose memory it is{share}"
        defaults = replace(defaults, user=ask_text("user", "--user", hint=hint))
    if defaults != given:
        found = convert(defaults)
        progress.pause()
    unknown = [
        f"{what} {one_line(name)}"
        for what, names in (("agent", found.survey.agents), ("user", found.survey.users))
        for name, known in names.items()
        if not known
    ]
    if not unknown or defaults.add_missing or not person_is_there():
        return found
    if not confirm(f"Add {', '.join(unknown[:_SHOWN])}?", yes=False):
        return found
    return convert(replace(defaults, add_missing=True))


def _print_survey(run: Invocation, survey: Survey, unit: str, *, unknown: str) -> None:
    counts = ((survey.facts, "fact"), (survey.sessions, "session"), (survey.messages, "message"))
    what = ", ".join(many(count, name) for count, name in counts if count) or "nothing to import"
    if survey.since and survey.until:
        what += f", {survey.since:%Y-%m-%d} to {survey.until:%Y-%m-%d}"
    run.out.note(f"  {what}")
    for title, names in (("agents", survey.agents), ("users", survey.users)):
        shown = [one if known else f"{one} ({unknown})" for one, known in names.items()]
        if shown:
            more = [f"and {len(shown) - _SHOWN:,} more"] if len(shown) > _SHOWN else []
            run.out.note(f"  {title}: {one_line(', '.join([*shown[:_SHOWN], *more]))}")
    if survey.facts and unknown == "unknown" and not all((survey.agents | survey.users).values()):
        run.out.note("  --add-missing adds the unknown ones")
    if survey.left_out:
        listed = ", ".join(f"{name} ({count:,})" for name, count in survey.left_out.items())
        run.out.note(f"  left out: {one_line(listed)}")
    for number, reason in survey.objections[:_SHOWN]:
        run.out.note(f"  {unit} {number}: {reason}")
    if survey.long:
        run.out.note(f"  over {survey.words} words: {many(survey.long, 'fact')}")
    if survey.undated:
        run.out.note(f"  dated now, since they have no times: {many(survey.undated, 'session')}")


# -- the outcome -----------------------------------------------------------------------------------


class Reports(msgspec.Struct, kw_only=True):
    """What an import did: facts and other records, conversations, and what was left out."""

    facts: RestoreReport | None = None
    chats: ImportReport | None = None
    survey: Survey | None = None
    unit: str = "line"

    @property
    def is_complete(self) -> bool:
        """Return whether all of the file is stored."""
        facts, chats = self.facts, self.chats
        damage = (facts and facts.damage) or (self.survey and self.survey.damage)
        failed = facts is not None and (facts.failed or facts.differing)
        return not (damage or failed or (chats and chats.problems))

    def print(self, run: Invocation, source: str, *, dry_run: bool) -> None:
        """Print the outcomes; problems, differences and the next step go to stderr."""
        file, facts, chats = file_name(source), self.facts, self.chats
        rows: list[dict[str, Any]] = []
        if facts:
            problems = [{"line": line, "reason": reason} for line, reason in facts.problems]
            rows.append(to_data(facts) | {"problems": problems})
        if chats:
            rows.append(to_data(chats) | {"dry_run": dry_run})
        left_out: dict[str, Any] = {}
        if self.survey:
            objections = [{"line": n, "reason": why} for n, why in self.survey.objections]
            left_out = {"left_out": self.survey.left_out, "objections": objections}

        def show() -> None:
            if facts:
                _show_records(run, facts)
            if chats:
                _show_sessions(run, chats, dry_run=dry_run)

        for number, problem in chats.problems if chats else ():
            run.out.note(f"{line_place(number, file, self.unit)}: {problem}")
        run.out.report(rows, show, data=lambda row: row | left_out)
        if facts:
            _print_notes(run, facts, file)
        if self.survey and self.survey.damage:
            print_error(f"{file}: {self.survey.damage}", None)
        if self.survey and not dry_run:
            self._print_next(run, self.survey)

    def _print_next(self, run: Invocation, survey: Survey) -> None:
        if self.chats and self.chats.new_messages:
            when = " once they are idle, or 'edenmem form SESSION' now" if survey.undated else ""
            run.out.note(f"next: form memories from them with 'edenmem cold run'{when}")
        if self.facts and self.facts.total("added"):
            named = (("--agent", survey.agents), ("--user", survey.users))
            options = [
                f"{option} {shlex.quote(next(iter(names)))}" for option, names in named if names
            ]
            embed = "'edenmem embed backfill', then " if self.facts.without_vector else ""
            run.out.note(f"next: {embed}'edenmem search QUERY {' '.join(options)}'")


def _show_records(run: Invocation, report: RestoreReport) -> None:
    rows = list(report.counts.items())
    used = [w for w in _WORDS if any(counts.get(w) for _, counts in rows)]
    empty = "no valid lines" if report.failed else "the file is empty"
    run.out.listing(rows, _columns(used), empty=empty)
    if rows and not report.failed and set(used) == {"same"}:
        total = sum(counts["same"] for _, counts in rows)
        exist = "1 record exists" if total == 1 else f"all {total:,} records exist"
        run.out.note(f"nothing to import: {exist} already")


def _show_sessions(run: Invocation, report: ImportReport, *, dry_run: bool) -> None:
    if kept := report.owners_kept:
        run.out.note(f"owners of {many(kept, 'existing session')} left unchanged")
    run.out.line(
        f"{'would import' if dry_run else 'imported'} {report.new_sessions} of "
        f"{many(report.sessions, 'session')}, {report.new_messages} of"
        f" {many(report.messages, 'message')}"
    )
    for what, added in (("agents", report.agents_added), ("users", report.users_added)):
        if added:
            run.out.fields([(f"  {what} added", list(added))])


def _print_notes(run: Invocation, report: RestoreReport, file: str) -> None:
    """Print problems and differences."""
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
        without = many(report.without_vector, "fact")
        run.out.note(f"{without} without a vector; 'edenmem embed backfill' adds it")
    if report.run_id and not report.dry_run:
        run.out.note(f"to undo this run: edenmem undo --run {report.run_id}")


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
    before, after = edit.shown
    for sign, text, code in (("-", before, "31"), ("+", after, "32")):
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
