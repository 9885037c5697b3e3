"""The root of the command line: a table of commands, each imported on first use."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from edenmem import __version__
from edenmem.cli.app.failures import print_error, run_guarded
from edenmem.cli.app.framework import Group, build_group, command, global_parameters
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.files import redirect_output
from edenmem.cli.terminal.output import adapt_stream
from edenmem.errors import ExitCode, StoreError


class Entry(NamedTuple):
    """A command or group in the help.

    Attributes:
        section: The heading in the help.
        module: The module under `edenmem.cli.commands`, with ``app`` or ``NAME_app`` for a group,
            else with a function of the command's name (and an underscore if that is a keyword).
        name: The name.
        help: A few words.
        is_group: Whether it has subcommands.
        default: The subcommand of a group that is called without one.
    """

    section: str
    module: str
    name: str
    help: str
    is_group: bool = False
    default: str = ""


_START, _MEMORY, _LISTS = "Getting started", "Memory", "Lists and new entries"
_WORK, _DATA, _SERVERS = "Operations", "Data", "Servers"

COMMANDS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(_START, "setup", "demo", "run an end-to-end demo"),
        Entry(_START, "setup", "init", "create the store"),
        Entry(_START, "status", "status", "size, due work, failures"),
        Entry(_START, "status", "stats", "growth, use and cost"),
        Entry(_START, "doctor", "doctor", "check and repair"),
        Entry(_START, "setup", "config", "settings, their origins", True),
        Entry(_START, "help", "help", "a command, or a guide"),
        Entry(_START, "show", "browse", "full-screen view"),
        Entry(_MEMORY, "search", "search", "find facts"),
        Entry(_MEMORY, "context", "context", "what goes into a prompt"),
        Entry(_MEMORY, "show", "show", "anything in full"),
        Entry(_MEMORY, "show", "why", "origin of a memory"),
        Entry(_MEMORY, "show", "history", "earlier versions"),
        Entry(_MEMORY, "change", "edit", "change a memory"),
        Entry(_MEMORY, "change", "delete", "delete memories"),
        Entry(_MEMORY, "change", "restore", "bring a memory back"),
        Entry(_MEMORY, "review", "review", "what waits for a person", True, "walk"),
        Entry(_MEMORY, "show", "log", "changes, seals, proofs", True, "list"),
        Entry(_MEMORY, "change", "undo", "undo a change or a run"),
        Entry(_LISTS, "memories", "fact", "list, add, merge", True),
        Entry(_LISTS, "memories", "reflection", "list, add", True),
        Entry(_LISTS, "memories", "consolidation", "list, diff, edit texts", True),
        Entry(_LISTS, "scopes", "scope", "list, policy, pause", True),
        Entry(_LISTS, "scopes", "agent", "list, add, set", True),
        Entry(_LISTS, "scopes", "user", "list, add, merge", True),
        Entry(_LISTS, "scopes", "session", "list", True),
        Entry(_LISTS, "scopes", "group", "list", True),
        Entry(_WORK, "form", "form", "memories from sessions"),
        Entry(_WORK, "form", "remember", "facts from any text"),
        Entry(_WORK, "form", "consolidate", "rewrite texts of scopes"),
        Entry(_WORK, "cold", "cold", "idle sessions, by cron", True),
        Entry(_WORK, "embed", "embed", "vectors of facts", True),
        Entry(_WORK, "index", "index", "create, list, drop", True),
        Entry(_WORK, "search", "eval", "measure search quality"),
        Entry(_DATA, "exchange", "import", "backups, chats, notes"),
        Entry(_DATA, "exchange", "export", "write memory to a file"),
        Entry(_DATA, "exchange", "backup", "a dated, verified file"),
        Entry(_DATA, "forget", "forget", "erase memory for good"),
        Entry(_DATA, "forget", "person", "show, export, forget", True),
        Entry(_DATA, "migrate", "migrate", "from v1; the schema", True),
        Entry(_SERVERS, "servers", "serve", "chat proxy, REST API"),
        Entry(_SERVERS, "servers", "mcp", "memory as MCP tools"),
        Entry(_SERVERS, "servers", "token", "tokens of the server", True),
    )
}


def load(entry: Entry) -> Any:
    """Build the parser's command for an entry of the table."""
    module = import_module(f"edenmem.cli.commands.{entry.module}")
    if entry.is_group:
        built = build_group(getattr(module, entry.name + "_app", None) or module.app)
        built.name, built.default = entry.name, entry.default
        return built
    return command(entry.name, getattr(module, entry.name + "_" * iskeyword(entry.name)))


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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; without any, print all commands on one screen."""
        if not args and not ctx.resilient_parsing:
            sys.stdout.write("\n".join(_overview()) + "\n")
            raise typer.Exit(ExitCode.OK)
        return super().parse_args(ctx, args)

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


def _overview() -> list[str]:
    """Return all commands in two columns, for a screen of 80 by 24."""
    cells = [f"  {entry.name:<14}{entry.help}" for entry in COMMANDS.values()]
    cells.append(f"  {'--help':<14}options of every command")
    half = (len(cells) + 1) // 2
    rows = itertools.zip_longest(cells[:half], cells[half:], fillvalue="")
    return [
        "usage: edenmem COMMAND … (long-term memory for AI agents, in SQLite or MongoDB)",
        *(f"{left:<40}{right}".rstrip() for left, right in rows),
    ]


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
    return run_guarded(lambda: _dispatch(arguments, invocation), invocation)


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
