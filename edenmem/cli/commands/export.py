"""``edenmem export|backup``: write memory to a file."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error, print_errors
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import count_noun
from edenmem.cli.terminal.output import OutputFormat, show_progress
from edenmem.cli.terminal.prompts import Missing
from edenmem.engine.exchange.kinds import System
from edenmem.errors import UsageError
from edenmem.models.backup import RecordKind
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.exchange.exporter import ExportReport, ExportRequest


Agents = Annotated[
    list[str] | None,
    typer.Option("--agent", "-a", metavar="AGENT", help="Only this agent (repeatable)."),
]
_Vectors = Annotated[
    bool, typer.Option("--vectors/--no-vectors", help="Include the vectors of facts.")
]
#: Maximum number of problems to print.
_SHOWN = 10

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
    if target is not None and output is not None:
        raise UsageError("FILE and -o exclude each other")
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
