"""The root of the command line: a table of commands, each imported only when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from edenmem import __version__
from edenmem.cli.app.failures import print_error, run_guarded
from edenmem.cli.app.framework import Group, build_command, build_group, global_parameters
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.encoding import adapt_stream
from edenmem.errors import ExitCode


class Entry(NamedTuple):
    """A command or group of commands: its room, its module (the ``app``), and one line of help."""

    section: str
    room: str
    name: str
    help: str
    is_group: bool = False

    @property
    def module(self) -> str:
        """The module that holds it; one whose name is a word of Python ends in an underscore."""
        ending = "_" if iskeyword(self.name) else ""
        return f"edenmem.cli.commands.{self.room}.{self.name}{ending}"


_BEGIN, _WHO, _MEMORY, _WORK = "Begin", "Who and where", "Memory", "Work"
_DOORS = "Doors for agents"

COMMANDS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(_BEGIN, "start", "demo", "See the whole of it work on an example, in a new file."),
        Entry(_BEGIN, "start", "init", "Make the store, or what is missing in it."),
        Entry(_BEGIN, "start", "status", "Where memory lives, how much there is, what is due."),
        Entry(
            _BEGIN, "start", "stats", "Growth, sizes, use and cost of memory, in tables and charts."
        ),
        Entry(_BEGIN, "start", "doctor", "Examine the store and its memory; mend what is safe."),
        Entry(_BEGIN, "start", "config", "The settings in force, and where each comes from.", True),
        Entry(_BEGIN, "start", "help", "The help of a command, or a guide to a subject."),
        Entry(_WHO, "people", "agent", "Agents: list, show, add, enable, disable.", True),
        Entry(_WHO, "people", "user", "Users: list, show, add, merge.", True),
        Entry(_WHO, "people", "session", "Sessions: list, show, import.", True),
        Entry(_WHO, "people", "scope", "Scopes: list, show, policy, pause, resume.", True),
        Entry(
            _MEMORY,
            "memory",
            "fact",
            "Facts: list, show, add, edit, delete, history, restore, dedup, why.",
            True,
        ),
        Entry(_MEMORY, "memory", "reflection", "Reflections: list, show, add, edit, delete.", True),
        Entry(
            _MEMORY,
            "memory",
            "consolidation",
            "Consolidated texts: list, show, edit, history, diff, restore, why.",
            True,
        ),
        Entry(_MEMORY, "memory", "log", "Who changed what, when and why."),
        Entry(_MEMORY, "memory", "undo", "Take back a change, or all of a run."),
        Entry(_MEMORY, "memory", "browse", "Browse and correct memory on a full screen."),
        Entry(_WORK, "search", "search", "Find facts by meaning and by words."),
        Entry(
            _WORK, "search", "eval", "How well search finds what it should, on your own queries."
        ),
        Entry(_WORK, "search", "context", "The memory that goes into an agent's prompt.", True),
        Entry(_WORK, "work", "form", "Form memories from conversations."),
        Entry(_WORK, "work", "remember", "Extract facts from any text, and keep what is new."),
        Entry(
            _WORK,
            "work",
            "consolidate",
            "Merge pending reflections into the texts of their scopes.",
        ),
        Entry(
            _WORK, "work", "cold", "Quiet sessions, from cron: run, status, retry, crontab.", True
        ),
        Entry(
            _WORK, "data", "forget", "Remove every trace of a user, a session, a group or an agent."
        ),
        Entry(_WORK, "indexes", "embed", "Vectors of facts: status, backfill, switch.", True),
        Entry(_WORK, "data", "export", "Write memory to a file: complete, or as Markdown to edit."),
        Entry(
            _WORK, "data", "import", "Read memory from a file: a backup, lines, or edited Markdown."
        ),
        Entry(
            _WORK,
            "data",
            "migrate",
            "Memory of v1, and the schema: v1, up, down, status, verify, rollback.",
            True,
        ),
        Entry(
            _WORK,
            "indexes",
            "index",
            "Indexes: create, list, status, conflicts, update, drop.",
            True,
        ),
        Entry(_DOORS, "doors", "serve", "Serve memory over HTTP: a chat proxy that remembers."),
        Entry(_DOORS, "doors", "token", "Tokens of the server: create, list, revoke.", True),
        Entry(_DOORS, "doors", "mcp", "Serve memory as tools of the Model Context Protocol."),
    )
}


def load(entry: Entry) -> Any:
    """The parser's command for an entry of the table."""
    app = import_module(entry.module).app
    command = build_group(app) if entry.is_group else build_command(app.registered_commands[0])
    command.name = entry.name
    return command


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of each command, groups left out, and the command; for documentation and tests."""
    for name, entry in COMMANDS.items():
        command = load(entry)
        if not entry.is_group:
            yield (name,), command
            continue
        for sub in command.list_commands(None):
            yield (name, sub), command.get_command(None, sub)


class Root(Group):
    """The root group: knows all names and summaries without importing what is behind them."""

    def __init__(self, **attributes: Any) -> None:
        own = attributes.pop("params", None) or []
        super().__init__(params=[*own, *global_parameters()], **attributes)

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now."""
        entry = COMMANDS.get(cmd_name)
        return load(entry) if entry else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by section."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(e.name, e.help) for e in COMMANDS.values() if e.section == section],
                    col_max=16,
                )


app = typer.Typer(
    cls=Root,
    name="edenmem",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"edenmem {__version__}\n")
        raise typer.Exit


@app.callback(
    epilog="Exit codes: 0 done, 1 some items failed, 2 usage, 3 not found, 4 conflict, "
    "5 database or provider unreachable, 130 interrupted."
)
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Long-term memory for AI agents, in SQLite or MongoDB.

    Wherever an id is taken, a name or a unique beginning of the id (from 4 digits on) does too.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Nothing but the exit code comes out, ever."""
    is_stdout_open = _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        adapt_stream(stream)
    if not is_stdout_open:
        print_error("standard output is closed", "add '> /dev/null' to discard the output")
        return int(ExitCode.USAGE)
    invocation = Invocation()
    return run_guarded(
        lambda: _dispatch(arguments, invocation),
        wants_traceback=lambda: invocation.traceback,
        is_writing=lambda: invocation.is_writing,
    )


def _replace_closed_streams() -> bool:
    """Open the null device for each standard stream that is closed, so that no database takes its
    number; whether stdout was open."""
    is_stdout_open = sys.stdout is not None
    null = Path(os.devnull)
    if sys.stdin is None:
        sys.stdin = null.open(encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = null.open("w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = null.open("w", encoding="utf-8")
    return is_stdout_open


def _dispatch(arguments: Sequence[str], invocation: Invocation) -> int:
    try:
        result = get_command(app).main(
            list(arguments), prog_name="edenmem", standalone_mode=False, obj=invocation
        )
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer would end the process with 1
            raise end.__context__ from None
        raise
    finally:
        invocation.close()
        invocation.end_log()
    if result == ExitCode.INTERRUPTED:  # Typer has caught the Ctrl-C
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0
