"""``edenmem import``: read memory from a file."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import invocation
from edenmem.cli.commands.data.exchange_views import print_import, print_sessions
from edenmem.cli.terminal.files import file_name, name_file
from edenmem.cli.terminal.progress import show_progress
from edenmem.engine.exchange.kinds import FileKind
from edenmem.errors import ExitCode, UsageError


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
        from edenmem.cli.commands.data.markdown_views import import_folder

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
