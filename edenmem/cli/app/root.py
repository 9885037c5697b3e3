"""The root of the command line: a table of commands, each imported on first use."""

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
from edenmem.cli.terminal.files import redirect_output
from edenmem.errors import ExitCode, StoreError


class Entry(NamedTuple):
    """A command or group: its section in the help, its package, its name and its help."""

    section: str
    room: str
    name: str
    help: str
    is_group: bool = False

    @property
    def module(self) -> str:
        """Return the module; the name of a Python keyword ends in an underscore."""
        ending = "_" if iskeyword(self.name) else ""
        return f"edenmem.cli.commands.{self.room}.{self.name}{ending}"


_BEGIN, _WHO, _MEMORY, _WORK = "Getting started", "Agents, users, scopes", "Memory", "Operations"
_SERVERS = "Servers"

COMMANDS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(_BEGIN, "start", "demo", "Run an end-to-end demo in a new file."),
        Entry(_BEGIN, "start", "init", "Create the store, or any missing parts of it."),
        Entry(_BEGIN, "start", "status", "Show the store, its size, due work and failures."),
        Entry(_BEGIN, "start", "stats", "Show growth, size, use and cost of memory."),
        Entry(_BEGIN, "start", "doctor", "Check the store and its memory; make safe repairs."),
        Entry(_BEGIN, "start", "config", "Show the settings and their origins.", True),
        Entry(_BEGIN, "start", "help", "Show the help of a command, or a guide."),
        Entry(_WHO, "people", "agent", "List, show, add, enable and disable agents.", True),
        Entry(_WHO, "people", "user", "List, show, add and merge users.", True),
        Entry(_WHO, "people", "session", "List, show and import sessions.", True),
        Entry(_WHO, "people", "scope", "List and show scopes; set policies, pause, resume.", True),
        Entry(
            _MEMORY,
            "memory",
            "fact",
            "List, edit, restore, explain and merge facts.",
            True,
        ),
        Entry(
            _MEMORY, "memory", "reflection", "List, show, add, edit and delete reflections.", True
        ),
        Entry(
            _MEMORY,
            "memory",
            "consolidation",
            "Show, edit, compare, restore and explain texts.",
            True,
        ),
        Entry(_MEMORY, "memory", "log", "Show who changed what, when and why."),
        Entry(_MEMORY, "memory", "undo", "Undo a change, or all changes of a run."),
        Entry(_MEMORY, "memory", "browse", "Browse and edit memory in a full-screen view."),
        Entry(_WORK, "search", "search", "Find facts by meaning and by words."),
        Entry(_WORK, "search", "eval", "Measure search quality on labeled queries."),
        Entry(
            _WORK, "search", "context", "Show the context that goes into an agent's prompt.", True
        ),
        Entry(_WORK, "work", "form", "Form memories from sessions."),
        Entry(_WORK, "work", "remember", "Extract facts from any text, and store the new ones."),
        Entry(
            _WORK,
            "work",
            "consolidate",
            "Merge pending reflections into the texts of their scopes.",
        ),
        Entry(_WORK, "work", "cold", "Form memories from idle sessions, from cron.", True),
        Entry(_WORK, "data", "forget", "Erase a user, session, group, agent or fact completely."),
        Entry(
            _WORK, "indexes", "embed", "Create vectors for facts; switch embedding models.", True
        ),
        Entry(_WORK, "data", "export", "Write memory to a backup, or to Markdown files."),
        Entry(_WORK, "data", "import", "Read a backup, JSON Lines, or edited Markdown files."),
        Entry(
            _WORK,
            "data",
            "migrate",
            "Migrate memory from v1, and the schema.",
            True,
        ),
        Entry(
            _WORK,
            "indexes",
            "index",
            "Create, list, update and drop indexes.",
            True,
        ),
        Entry(_SERVERS, "servers", "serve", "Serve a chat proxy with memory, and a REST API."),
        Entry(_SERVERS, "servers", "token", "Create, list and revoke access tokens.", True),
        Entry(_SERVERS, "servers", "mcp", "Serve memory as MCP tools."),
    )
}


def load(entry: Entry) -> Any:
    """Build the parser's command for an entry of the table."""
    app = import_module(entry.module).app
    command = build_group(app) if entry.is_group else build_command(app.registered_commands[0])
    command.name = entry.name
    return command


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the parser of each command, without groups."""
    for name, entry in COMMANDS.items():
        command = load(entry)
        if not entry.is_group:
            yield (name,), command
            continue
        for sub in command.list_commands(None):
            yield (name, sub), command.get_command(None, sub)


class Root(Group):
    """The root group, which lists all commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        own = attributes.pop("params", None) or []
        super().__init__(params=[*own, *global_parameters()], **attributes)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command with this name."""
        entry = COMMANDS.get(cmd_name)
        return load(entry) if entry else None

    def invoke(self, ctx: Any) -> Any:
        """Run the command, or print the version to stdout or the file of ``-o``."""
        if not ctx.params["version"]:
            return super().invoke(ctx)
        run = ctx.obj
        with redirect_output(run.output, force=run.overwrite, in_use=run.files_in_use):
            sys.stdout.write(f"edenmem {__version__}\n")
        return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Print the commands by section."""
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


@app.callback(
    epilog="Exit codes: 0 done, 1 some items failed, 2 usage, 3 not found, 4 conflict, "
    "5 database or provider unreachable, 130 interrupted."
)
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version."),
    ] = False,
) -> None:
    """Long-term memory for AI agents, in SQLite or MongoDB.

    Wherever an ID is expected, a name or a unique ID prefix of 4 or more digits also works.
    """


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; never raise."""
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
        advise=invocation.repeat_options,
    )


def _replace_closed_streams() -> bool:
    """Open the null device for each closed standard stream, and return whether stdout was open.

    Otherwise a database could get the file descriptor of a standard stream.
    """
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
    except StoreError as error:
        invocation.advise_on_default_store(error)
        raise
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer would exit with 1
            raise end.__context__ from None
        raise
    finally:
        invocation.close()
        invocation.end_log()
    if result == ExitCode.INTERRUPTED:  # Typer caught Ctrl-C
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0
