"""``edenmem import``: read memory from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.commands.data.exchange_views import print_import
from edenmem.cli.terminal.files import file_name, name_file
from edenmem.cli.terminal.output import OutputFormat
from edenmem.cli.terminal.progress import show_progress
from edenmem.errors import ExitCode, InputError, UsageError

app = single()

_MEM0 = "mem0"
_ON_CONFLICT = ("keep", "replace", "fail")


def _conflict_word(given: str) -> str:
    if given not in _ON_CONFLICT:
        raise UsageError(
            f"--on-conflict takes one of {', '.join(_ON_CONFLICT)}, not {given!r}",
            hint=suggest(given, _ON_CONFLICT),
        )
    return given


def _read_format(run: Invocation, given: str | None) -> bool:
    """Return whether the file is in mem0's format; set other formats as the global option."""
    if given is None or given == _MEM0:
        return given == _MEM0
    if given not in list(OutputFormat):
        raise UsageError(
            f"--format takes one of {', '.join((_MEM0, *OutputFormat))}, not {given!r}",
            hint=suggest(given, (_MEM0, *OutputFormat)),
        )
    run.take("format", OutputFormat(given))
    return False


@app.command(cls=Command)
def import_(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="JSON Lines (also gzipped), a folder of Markdown, or - for stdin."
        ),
    ],
    on_conflict: Annotated[
        str,
        typer.Option(
            "--on-conflict",
            metavar="HOW",
            help="For records that differ: keep the stored one, replace it, or fail.",
        ),
    ] = "keep",
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
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the file: jsonl, mem0 or markdown.  [default: jsonl]  Or of the report:"
            " table, json, jsonl, csv.",
        ),
    ] = None,
    agent: options.Agent = None,
    user: options.User = None,
    add_missing: Annotated[
        bool, typer.Option("--add-missing", help="mem0: add unknown users.")
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Import a backup, JSON Lines, edited Markdown, or memories of mem0.

    Checks the whole file first, and refuses a truncated or altered backup. Existing records are
    kept; differing ones are reported, and replaced only with --on-conflict replace. Importing again
    changes nothing, and completes an interrupted import. A full backup restores its history; other
    lines are new changes that 'undo --run' can revert.

    A minimal line:
    {"type": "fact", "agent": "mira", "scope": "user", "user": "lena", "content": "…"}
    For all fields, see 'edenmem help --guide import'. --agent and --user are the defaults for
    memories of mem0 without them.

    \b
    edenmem import backup.jsonl.gz --dry-run
    edenmem import memories.json --format mem0 --agent mira --add-missing
    edenmem import facts.jsonl --on-conflict replace
    edenmem import notes --format markdown
    """
    run = invocation(ctx)
    is_mem0 = _read_format(run, file_format)
    if not is_mem0 and (agent or user or add_missing):
        raise UsageError("--agent, --user and --add-missing need --format mem0")
    word = _conflict_word(on_conflict)
    if run.out.format is OutputFormat.MARKDOWN or (
        not is_mem0 and source != "-" and Path(source).is_dir()
    ):
        from edenmem.cli.commands.data.markdown_views import import_folder

        import_folder(run, source, delete=delete, yes=yes, dry_run=dry_run, allow_long=allow_long)
        return
    if delete:
        raise UsageError("--delete needs a folder of Markdown")
    from edenmem.engine.exchange.files import Source

    from_pipe = source == "-"
    opened = Source.spool(sys.stdin.buffer, "stdin") if from_pipe else Source.open_file(source)
    with opened as lines, name_file(source), show_progress(run.out) as progress:
        exchange = run.service.exchange
        try:
            report = exchange.importer.take(
                exchange.read_mem0(lines, agent=agent, user=user, add_missing=add_missing)
                if is_mem0
                else lines,
                on_conflict=word,  # type: ignore[arg-type]
                skip_bad=skip_bad,
                allow_incomplete=allow_incomplete,
                allow_long=allow_long,
                owner=owner,
                dry_run=dry_run,
                progress=progress.step,
            )
        except InputError as error:
            if not is_mem0 and exchange.may_be_mem0(lines):
                error.add_hint("an export of mem0 needs --format mem0")
            raise
    print_import(run, report, file_name(source))
    if report.failed or report.differing or report.damage:
        raise typer.Exit(ExitCode.SOME_FAILED)
