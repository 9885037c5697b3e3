"""``edenmem import``: memory from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.data.exchange_views import print_import
from edenmem.cli.terminal.output import OutputFormat
from edenmem.cli.terminal.progress import show_progress
from edenmem.errors import ExitCode, UsageError

app = single()

_MEM0 = "mem0"
_ON_CONFLICT = ("keep", "replace", "fail")


def _conflict_word(given: str) -> str:
    if given not in _ON_CONFLICT:
        raise UsageError(f"--on-conflict {given!r}: it is one of {', '.join(_ON_CONFLICT)}")
    return given


def _read_format(run: Invocation, given: str | None) -> bool:
    """Report whether the file is one of mem0's; any other format is kept as the global option."""
    if given is None or given == _MEM0:
        return given == _MEM0
    if given not in list(OutputFormat):
        raise UsageError(f"--format {given!r}: it is one of {', '.join((_MEM0, *OutputFormat))}")
    run.take("format", OutputFormat(given))
    return False


@app.command(cls=Command)
def import_(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="JSON Lines, compressed or not; a folder of Markdown; - is stdin."
        ),
    ],
    on_conflict: Annotated[
        str,
        typer.Option(
            "--on-conflict",
            metavar="WORD",
            help="Of what differs: keep what is stored (the default), replace it, or fail.",
        ),
    ] = "keep",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Take the good lines (exit 1); else all or none.")
    ] = False,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Take what can be read of a backup that is damaged."
        ),
    ] = False,
    allow_long: options.AllowLong = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="Markdown: delete what has no line any more.")
    ] = False,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="USER",
            help="MongoDB: the owner of agents and sessions that have none.",
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Of the file: jsonl (the default), mem0 or markdown. Of the report: table, json,"
            " jsonl, csv.",
        ),
    ] = None,
    agent: options.Agent = None,
    user: options.User = None,
    add_missing: Annotated[
        bool, typer.Option("--add-missing", help="mem0: add users that are not known yet.")
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Read what 'edenmem export' wrote, or lines of your own, into the store.

    The whole file is checked first: a backup that was cut off or altered is refused. What is there
    already stays; what differs is told, and replaced only if that is asked for. Doing it again
    changes nothing, and one that was interrupted is completed by doing it again. A whole backup
    brings its own history; other lines are new changes, and can be undone by their run.

    A line of your own needs no more than this:
    {"type": "fact", "agent": "mira", "scope": "user", "user": "lena", "content": "…"}
    The guide says what else it may have: 'edenmem help --guide import'. A memory of mem0 that names
    no agent is of --agent, one that names neither user nor agent is of --user.

    \b
    edenmem import backup.jsonl.gz --dry-run
    edenmem import memories.json --format mem0 --agent mira --add-missing
    edenmem import facts.jsonl --on-conflict replace
    edenmem import notes --format markdown
    """
    run = invocation(ctx)
    is_mem0 = _read_format(run, file_format)
    if not is_mem0 and (agent or user or add_missing):
        raise UsageError("--agent, --user and --add-missing are for --format mem0")
    word = _conflict_word(on_conflict)
    if run.out.format is OutputFormat.MARKDOWN or (
        not is_mem0 and source != "-" and Path(source).is_dir()
    ):
        from edenmem.cli.commands.data.markdown_views import import_folder

        import_folder(run, source, delete=delete, yes=yes, dry_run=dry_run, allow_long=allow_long)
        return
    if delete:
        raise UsageError("--delete is for a folder of Markdown")
    from edenmem.engine.exchange.files import Source

    from_pipe = source == "-"
    opened = Source.spool(sys.stdin.buffer, "stdin") if from_pipe else Source.open_file(source)
    with opened as lines, show_progress(run.out) as progress:
        exchange = run.service.exchange
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
    print_import(run, report)
    if report.failed or report.differing or report.damage:
        raise typer.Exit(ExitCode.SOME_FAILED)
