"""``edenmem import|export|backup``: memory in files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import replace

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error, print_errors
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import count_noun, note_undo_run
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.files import file_name, name_file
from edenmem.cli.terminal.output import OutputFormat, Progress, format_of, show_progress
from edenmem.cli.terminal.prompts import Missing, ask_text, confirm, person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.engine.exchange.kinds import FileKind, System, kind_of
from edenmem.errors import ExitCode, InputError, UsageError, line_location
from edenmem.models.backup import RecordKind
from edenmem.text import many, one_line, printable

if TYPE_CHECKING:
    from edenmem.engine.exchange.conversion import Conversion, Defaults, Survey
    from edenmem.engine.exchange.edits import ApplyReport, Edit, Plan
    from edenmem.engine.exchange.exporter import ExportReport, ExportRequest
    from edenmem.engine.exchange.files import Source
    from edenmem.engine.exchange.folders import FileProblem
    from edenmem.engine.exchange.importer import RestoreReport
    from edenmem.engine.reports import ImportReport


#: Maximum number of names and problems to print.
_SHOWN = 10
#: Outcomes of records, in the order of the columns.
_WORDS = ("added", "replaced", "same", "differs", "kept", "refused", "left out")


def import_(
    run: Invocation,
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
        options.OnConflict,
        typer.Option(
            "--on-conflict",
            metavar="HOW",
            help="For records that differ: keep the stored one, or replace it.",
        ),
    ] = "keep",
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Import the valid lines, and the rest of a damaged file (exit 1)."
        ),
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
        Literal["user", "agent"] | None,
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

    For all formats and fields, see 'edenmem help --guide import'. A minimal record, and a
    conversation:

    \b
    {"type": "fact", "agent": "mira", "scope": "user", "user": "lena",
     "content": "…"}
    {"session": "visit", "agent": "mira", "users": ["lena"],
     "messages": [
       {"role": "user", "name": "lena", "content": "Hi!",
        "created_at": "2026-11-02T09:14:00Z"}]}

    \b
    edenmem import sessions.jsonl --add-missing
    edenmem import backup.jsonl.gz --dry-run
    edenmem import chatgpt.zip --agent mira --user lena --add-missing
    edenmem import memories.json --agent mira --dry-run
    """
    path = Path(source)
    is_folder = source != "-" and path.is_dir()
    if is_folder:
        if kind not in (None, FileKind.NOTES):
            raise UsageError(f"{source} is a folder, which --as {kind} does not read")
        kind = FileKind.NOTES
    from edenmem.engine.exchange.folders import is_export

    exchange = run.service.exchange
    if kind is FileKind.NOTES and (not path.exists() or delete or is_export(path)):
        _import_folder(run, path, delete=delete, yes=yes, dry_run=dry_run, allow_long=allow_long)
        return
    if delete:
        raise UsageError("--delete needs a folder of Markdown")
    from edenmem.engine.exchange.conversion import Defaults
    from edenmem.engine.exchange.files import Source

    with ExitStack() as opened, name_file(source), show_progress(run.out) as progress:
        file: Any = path
        if source == "-":
            file = opened.enter_context(Source.spool(sys.stdin.buffer, "stdin"))
        elif not is_folder:
            file = opened.enter_context(Source.open_file(source))
        kind = kind or kind_of(file)
        run.out.note(f"{file_name(source)}: {kind.words}")
        take = partial(
            exchange.import_records,
            on_conflict=on_conflict,
            skip_bad=skip_bad,
            allow_long=allow_long,
            owner=owner,
            dry_run=dry_run,
            progress=progress.step,
        )
        facts: RestoreReport | None = None
        chats: ImportReport | None = None
        survey: Survey | None = None
        if kind is FileKind.RECORDS:
            if agent or user or scope or add_missing:
                raise UsageError(
                    "records name their scope: omit --agent, --user, --scope and --add-missing",
                    hint="name the format of another system's file with --as",
                )
            facts = take(file)
        else:
            given = Defaults(
                agent=agent, user=user, shared=scope == "agent", add_missing=add_missing
            )
            file = path if kind is FileKind.NOTES else file
            found = _convert(run, file, kind, opened, given, progress, can_ask=not dry_run)
            survey = found.survey
            if not survey.facts and is_folder:
                raise UsageError(f"no notes in {source}", hint="name a file in it to import that")
            if survey.damage and not skip_bad:
                raise InputError(
                    f"{file_name(source)}: {survey.damage}",
                    hint="nothing was changed; import the readable part with --skip-bad",
                )
            if found.facts.count or (not kind.has_chats and not found.chats.count):
                facts = take(found.facts, allow_long=True)
            if found.chats.count or kind.has_chats:
                chats = exchange.import_sessions(
                    found.chats,
                    skip_bad=skip_bad,
                    add_missing=found.defaults.add_missing,
                    dry_run=dry_run,
                    owner=owner,
                    progress=progress.step,
                )
                progress.pause()
                location_of = partial(line_location, file=file_name(source), unit=found.chats.unit)
                run.out.notes(
                    f"{location_of(number)}: {problem}" for number, problem in chats.problems
                )
        progress.pause()
        _print_done(run, facts, chats, survey, file_name(source), dry_run=dry_run)
    damage = (facts and facts.damage) or (survey and survey.damage)
    failed = facts is not None and (facts.failed or facts.differing)
    end_if(damage or failed or (chats and chats.problems))


# -- what comes ----------------------------------------------------------------------------------


def _convert(
    run: Invocation,
    source: Source | Path,
    kind: FileKind,
    opened: ExitStack,
    given: Defaults,
    progress: Progress,
    *,
    can_ask: bool,
) -> Conversion:
    """Convert a file, say what it has, and ask for what it does not say."""

    def convert(defaults: Defaults) -> Conversion:
        exchange = run.service.exchange
        found = exchange.convert(source, kind, opened, defaults, progress=progress.step)
        progress.pause()
        return found

    def ask(what: str, hint: str) -> str:
        if not can_ask:
            raise Missing(f"--{what}", hint=hint)
        return ask_text(what, f"--{what}", hint=hint)

    agents = list(islice(run.service.host.agents(), 2))
    if given.agent is None and len(agents) == 1:
        given = replace(given, agent=agents[0].username)
    found = convert(given)
    survey, defaults = found.survey, given
    _print_survey(run, survey, found.facts.unit, unknown="new" if given.add_missing else "unknown")
    if survey.without_agent:
        if agents and can_ask:
            name = options.choose_agent(run, None).username
        else:
            name = ask("agent", "name the agent they are for; --add-missing adds it")
        defaults = replace(defaults, agent=name)
    if survey.without_user:
        share = "" if survey.sessions else ", or share it with everyone: --scope agent"
        without = many(survey.without_user, "item")
        name = ask("user", f"{without} without a user: say whose memory it is{share}")
        defaults = replace(defaults, user=name)
    if defaults != given:
        found = convert(defaults)
    unknown = [
        f"{what} {one_line(name)}"
        for what, names in (("agent", found.survey.agents), ("user", found.survey.users))
        for name, known in names.items()
        if not known
    ]
    if not unknown or defaults.add_missing or not (can_ask and person_is_there()):
        return found
    if not confirm(f"Add {', '.join(unknown[:_SHOWN])}?", yes=False):
        return found
    return convert(replace(defaults, add_missing=True))


def _print_survey(run: Invocation, survey: Survey, unit: str, *, unknown: str) -> None:
    """Print what a file has, and what of it does not come."""
    counts = ((survey.facts, "fact"), (survey.sessions, "session"), (survey.messages, "message"))
    what = ", ".join(many(count, name) for count, name in counts if count) or "nothing to import"
    if survey.since and survey.until:
        what += f", {survey.since:%Y-%m-%d} to {survey.until:%Y-%m-%d}"

    def listed(names: dict[str, bool]) -> str:
        shown = [one if known else f"{one} ({unknown})" for one, known in names.items()]
        more = [f"and {len(shown) - _SHOWN:,} more"] if len(shown) > _SHOWN else []
        return one_line(", ".join([*shown[:_SHOWN], *more]))

    are_known = all((survey.agents | survey.users).values())
    left_out = ", ".join(f"{name} ({count:,})" for name, count in survey.left_out.items())
    undated = many(survey.undated, "session")
    run.out.notes(
        [
            f"  {what}",
            f"  agents: {listed(survey.agents)}" if survey.agents else "",
            f"  users: {listed(survey.users)}" if survey.users else "",
            "  --add-missing adds the unknown ones"
            if survey.facts and unknown == "unknown" and not are_known
            else "",
            f"  left out: {one_line(left_out)}" if left_out else "",
            *(f"  {unit} {number}: {reason}" for number, reason in survey.objections[:_SHOWN]),
            f"  over {survey.words} words: {many(survey.long, 'fact')}" if survey.long else "",
            f"  dated now, since they have no times: {undated}" if survey.undated else "",
        ]
    )


# -- the outcome ---------------------------------------------------------------------------------


def _print_done(
    run: Invocation,
    facts: RestoreReport | None,
    chats: ImportReport | None,
    survey: Survey | None,
    file: str,
    *,
    dry_run: bool,
) -> None:
    """Print the outcomes; problems, differences and the next step go to stderr."""
    rows: list[dict[str, Any]] = []
    if facts:
        problems = [{"line": line, "reason": reason} for line, reason in facts.problems]
        rows.append(to_data(facts) | {"problems": problems})
    if chats:
        rows.append(to_data(chats) | {"dry_run": dry_run})
    left_out: dict[str, Any] = {}
    if survey:
        objections = [{"line": n, "reason": why} for n, why in survey.objections]
        left_out = {"left_out": survey.left_out, "objections": objections}
    if not run.out.data(rows, lambda row: row | left_out):
        if facts:
            _show_records(run, facts)
        if chats:
            _show_sessions(run, chats, dry_run=dry_run)
    if facts:
        _print_notes(run, facts, file)
    if survey and survey.damage:
        print_error(f"{file}: {survey.damage}")
    if survey is None or dry_run:
        return
    if chats and chats.new_messages:
        when = " once they are idle, or 'edenmem form SESSION' now" if survey.undated else ""
        run.out.note(f"next: form memories from them with 'edenmem form --idle'{when}")
    if facts and facts.total("added"):
        named = (("--agent", survey.agents), ("--user", survey.users))
        given = [f"{option} {shlex.quote(next(iter(names)))}" for option, names in named if names]
        embed = "'edenmem embed backfill', then " if facts.without_vector else ""
        run.out.note(f"next: {embed}'edenmem search QUERY {' '.join(given)}'")


def _show_records(run: Invocation, report: RestoreReport) -> None:
    def count(word: str) -> Callable[[tuple[str, dict[str, int]]], int]:
        return lambda row: row[1].get(word, 0)

    rows = list(report.counts.items())
    used = [word for word in _WORDS if any(counts.get(word) for _, counts in rows)]
    columns: list[Column[tuple[str, dict[str, int]]]] = [
        Column("type", lambda row: row[0]),
        *(Column(word, count(word), "number") for word in used),
    ]
    run.out.listing(rows, columns, empty="no valid lines" if report.failed else "the file is empty")
    if rows and not report.failed and set(used) == {"same"}:
        total = report.total("same")
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
        run.out.fields([(f"  {what} added", added)])


def _print_notes(run: Invocation, report: RestoreReport, file: str) -> None:
    """Print problems and differences."""
    if report.damage:
        print_error(f"the file is damaged: {report.damage}")
    problems = [
        f"{line_location(line, file, report.unit)}: {why}" for line, why in report.problems[:_SHOWN]
    ]
    print_errors((problem, None) for problem in problems if problem != report.damage)
    if report.failed > _SHOWN:
        print_error(f"{many(report.failed - _SHOWN, 'more line')} could not be imported")
    for each in report.conflicts[:_SHOWN]:
        location = line_location(each.line, file, report.unit)
        print_error(f"{location}: {each.type} {each.id}: {each.detail}")
    if report.differing:
        more = f" ({report.differing - _SHOWN:,} more)" if report.differing > _SHOWN else ""
        print_error(
            f"kept stored versions of records that differ: {report.differing:,}{more}",
            "use --on-conflict replace for the versions of the file; replaced ones stay in history",
        )
    run.out.notes(
        f"skipped {many(count, 'vector')}: {reason}"
        for reason, count in report.vectors_left_out.items()
    )
    if report.without_vector:
        without = many(report.without_vector, "fact")
        run.out.note(f"{without} without a vector; 'edenmem embed backfill' adds it")
    if not report.dry_run:
        note_undo_run(run, report.run_id)


# -- Markdown ------------------------------------------------------------------------------------


def _import_folder(
    run: Invocation, source: Path, *, delete: bool, yes: bool, dry_run: bool, allow_long: bool
) -> None:
    """Show the edits in a folder, confirm, and apply them."""
    plan = run.service.exchange.plan_folder(source, delete=delete)
    if not run.out.is_data:
        _show_plan(run, plan)
    if not plan.files and not plan.problems:
        raise UsageError(f"no exported files in {source}", hint="see 'edenmem export --help'")
    if not plan.edits:
        run.out.note("nothing to change")
    report: ApplyReport | None = None
    if plan.edits and not dry_run:
        run.confirm(f"Apply {many(len(plan.edits), 'change')}?", yes=yes)
        report = run.serve(
            lambda service: service.exchange.take_folder(plan.edits, allow_long=allow_long)
        )
    done, refused = (report.done, report.refused) if report else (0, ())
    data: dict[str, Any] = to_data(plan) | {
        "dry_run": report is None,
        "done": done,
        "refused": list(map(to_data, refused)),
        "run_id": run.actor.run_id if done else None,
    }
    if not run.out.data([data], dict):
        print_errors((f"{_location(one.edit)}: {one.reason}", one.hint) for one in refused)
        run.out.notes(report.notices if report else ())
        if report is not None:
            run.out.safe(f"applied {done:,} of {many(len(plan.edits), 'change')}")
            note_undo_run(run, data["run_id"])
        elif plan.edits:
            run.out.note(f"would apply {many(len(plan.edits), 'change')}")
    failed = len(plan.problems) + len(plan.conflicts) + len(refused)
    conflicts_only = len(plan.conflicts) == failed and not done
    end_if(failed, ExitCode.CONFLICT if conflicts_only else ExitCode.SOME_FAILED)


def _show_plan(run: Invocation, plan: Plan) -> None:
    """Print the plan as diffs, and problems on stderr."""
    for edit in plan.edits:
        _show_edit(run, edit)
    hint = "export again, and repeat the edit"
    print_errors((f"{_location(one)}: {one.reason}", None) for one in plan.problems[:_SHOWN])
    print_errors(
        (f"{_location(one)}: {one.reason}; left unchanged", hint) for one in plan.conflicts[:_SHOWN]
    )
    left = sum(max(0, len(each) - _SHOWN) for each in (plan.problems, plan.conflicts))
    if left:
        print_error(many(left, "more problem"))
    if plan.missing:
        run.out.note(f"{many(plan.missing, 'removed line')}; --delete deletes their memory")


def _show_edit(run: Invocation, edit: Edit) -> None:
    run.out.heading(
        f"{_location(edit)}  {edit.action} {edit.target.replace('consolidation', 'text')}"
    )
    if edit.target == "consolidation":
        old, new = f"version {edit.version}", "the file"
        show_diff(run.out, edit.before, edit.after, old=old, new=new, to_stdout=True)
        return
    for sign, text, code in zip("-+", edit.shown, ("31", "32"), strict=True):
        for line in printable(text).splitlines():
            run.out.line(run.out.style(f"{sign} {line}", code))


def _location(item: FileProblem | Edit) -> str:
    return one_line(f"{item.path}:{item.line}" if item.line else item.path)


# -- export and backup ---------------------------------------------------------------------------

Agents = Annotated[
    list[str] | None,
    typer.Option("--agent", "-a", metavar="AGENT", help="Only this agent (repeatable)."),
]
_Vectors = Annotated[
    bool, typer.Option("--vectors/--no-vectors", help="Include the vectors of facts.")
]
Types = Annotated[
    list[RecordKind] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only this type of record (repeatable): fact, reflection, consolidation, policy, "
        "agent, user, session, message, history, audit, formation, usage.",
    ),
]


def export(
    run: Invocation,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="File (.gz: compressed), folder for Markdown, or - for stdout.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Same as FILE.")
    ] = None,
    agent: Agents = None,
    user: options.User = None,
    account: options.Account = None,
    scope: options.Kinds = None,
    type_: Types = None,
    since: options.Since = None,
    vectors: _Vectors = True,
    salvage: Annotated[
        bool,
        typer.Option("--salvage", help="Export what can be read of a damaged SQLite file."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    to: Annotated[
        System | None,
        typer.Option(
            "--to",
            metavar="SYSTEM",
            help="Write facts for another program: mem0, mcp (its memory server) or markdown.",
        ),
    ] = None,
) -> None:
    """Export all memory, or a selection, to a file.

    JSON Lines (the default) contain everything, with IDs, vectors, history and audit, for 'edenmem
    import' on any store. --format markdown writes a folder of texts to read, edit and keep in git;
    --to markdown one plain file, and --to mem0 or mcp what these systems have.
    Files are private to their owner and appear only when complete. A SQLite store is read in one
    snapshot; MongoDB is read document by document during concurrent writes. --salvage names on
    stderr what it cannot read, and exits with 1 if there is any.

    \b
    edenmem export backup.jsonl.gz
    edenmem export mira.jsonl --agent mira --since 30d
    edenmem export facts.jsonl --type fact --scope user --no-vectors
    edenmem export notes --format markdown --agent mira
    edenmem export memories.json --to mem0
    edenmem export --salvage rest.jsonl
    """
    options.exclusive({"FILE": target, "-o": output})
    target = output or target
    if run.out.format in (OutputFormat.JSON, OutputFormat.CSV):
        raise UsageError(
            f"export does not support --format {run.out.format}",
            hint="use --format jsonl or markdown",
        )
    is_folder = run.out.format is OutputFormat.MARKDOWN
    request = _request(run, agent, user, account, scope, type_, since, vectors=vectors)
    if salvage and is_folder:
        raise UsageError("--salvage does not support --format markdown")
    if to and (salvage or is_folder):
        raise UsageError("--to excludes --format and --salvage")
    if target is None:
        raise Missing("FILE")
    if not (to or is_folder) and format_of(target) not in (OutputFormat.TABLE, OutputFormat.JSONL):
        raise UsageError(
            f"export writes JSON Lines: {target}",
            hint="name the file .jsonl, add --to SYSTEM, or use --format markdown for a folder",
        )
    exchange = run.service.exchange
    if is_folder:
        _export_folder(run, request, target, force=force)
        return
    from edenmem.engine.exchange.files import open_for_writing

    is_gzip, in_use = target.endswith(".gz"), run.files_in_use
    with (
        show_progress(run.out) as progress,
        nullcontext(sys.stdout.buffer)
        if target == "-"
        else open_for_writing(target, compress=is_gzip, force=force, in_use=in_use) as file,
    ):
        write = exchange.salvage if salvage else exchange.write
        if to:
            write = partial(exchange.write_for, system=to)
        report = write(file, request=request, progress=lambda n: progress.step("writing", n, 0))
    _print_export(run, report, target)
    end_if(report.problems or report.lost)


def backup(
    run: Invocation,
    folder: Annotated[
        str | None,
        typer.Argument(metavar="[FOLDER]", help="Folder.  [default: backup.folder]"),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep", metavar="N", min=1, help="Keep the newest N backups, and remove older ones."
        ),
    ] = None,
    agent: Agents = None,
    vectors: _Vectors = True,
) -> None:
    """Seal the log, and write a verified backup, named by its time, to a folder.

    'import' reads it; 'log verify' says what a seal proves.

    \b
    edenmem backup /srv/backups --keep 14
    """
    target = folder or run.settings.backup.folder
    if not target:
        raise Missing("FOLDER", hint="name a folder, or set backup.folder")
    request = _request(run, agent, vectors=vectors)
    with show_progress(run.out) as progress:
        report = run.service.exchange.back_up(
            Path(target),
            request,
            keep=keep or 0,
            progress=lambda done: progress.step("writing", done, 0),
        )
    _print_export(run, report.export, str(report.path))
    run.out.note("checksums verified")
    if report.unsealed:
        print_error(report.unsealed, "see 'edenmem log verify'")
    for path in report.removed:
        run.out.safe(f"removed {path}")
    if report.export.problems:
        print_error(
            "older backups were kept, since records are missing from this one",
            "run 'edenmem doctor'",
        )
    advice = "check the file and remove it by hand"
    print_errors((f"kept {path}: {reason}", advice) for path, reason in report.damaged)
    end_if(report.export.problems or report.damaged or report.unsealed)


def _request(
    run: Invocation,
    agents: list[str] | None,
    user: str | None = None,
    account: str | None = None,
    scopes: options.Kinds = None,
    types: list[RecordKind] | None = None,
    since: str | None = None,
    *,
    vectors: bool,
) -> ExportRequest:
    from edenmem.engine.exchange.exporter import ExportRequest, select_types

    request = ExportRequest(
        agent_ids=tuple(run.resolver.agent(name).id for name in agents or ()),
        user_ids=options.resolve_accounts(run, user, account),
        scopes=tuple(scopes or ()),
        types=tuple(types or ()),
        since=options.parse_when(since, "--since"),
        vectors=vectors,
    )
    select_types(request)
    return request


def _print_export(run: Invocation, report: ExportReport, target: str) -> None:
    """Print an export; on stderr if the file went to stdout."""
    print_errors((f"not salvaged: {table}: {detail}", None) for table, detail in report.lost)
    print_errors((f"skipped {what}: {why}", None) for what, why in report.problems[:_SHOWN])
    if len(report.problems) > _SHOWN:
        print_error(f"skipped {len(report.problems) - _SHOWN:,} more")
    total = many(report.records, "record")
    parts = ", ".join(count_noun(kind, count) for kind, count in report.counts.items())
    if report.left_out:
        listed = ", ".join(f"{name} ({count:,})" for name, count in report.left_out.items())
        run.out.note(f"left out: {listed}")
    if target == "-":
        run.out.note(f"{total}: {parts}" if parts else total)
        return
    run.out.safe(f"wrote {total} to {target}")
    if parts:
        run.out.paragraph("  ", parts)


def _export_folder(run: Invocation, request: ExportRequest, target: str, *, force: bool) -> None:
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
