"""Base classes of commands: global options, suggestions for typing errors.

Typer vendors Click, so nothing here imports Click.
"""

from __future__ import annotations

import sys
from copy import copy
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typer.models import CommandInfo

from edenmem.cli.app.invocation import Invocation, LogFormat, command_line
from edenmem.cli.app.parameters import fill_in, lighten, suggest
from edenmem.cli.terminal.files import redirect_output
from edenmem.cli.terminal.output import ColorWhen, OutputFormat
from edenmem.errors import ConflictError, ExitCode, UsageError

#: Global options that the help of every command shows.
_SHOWN = frozenset({"format", "output"})


def group(help: str) -> typer.Typer:
    """Return a Typer application for a group of commands."""
    return typer.Typer(cls=Group, help=help, rich_markup_mode=None, add_completion=False)


def build_group(app: typer.Typer) -> Group:
    """Build the parser's group for an application that `group` returned."""
    made = get_group(group(str(app.info.help)))
    assert isinstance(made, Group)
    made.app = app
    made.params.extend(global_parameters(shown=_SHOWN))
    return made


def build_command(info: Any) -> Any:
    """Build the parser's command for a registered one."""
    holder, made = _single(), copy(info)
    made.callback = fill_in(info.callback)
    holder.registered_commands.append(made)
    return get_command(holder)


def command(name: str, callback: Any) -> Any:
    """Build the parser's command for a function."""
    return build_command(CommandInfo(name=name, cls=Command, callback=callback))


def _single() -> typer.Typer:
    """Return a Typer application for one command without subcommands."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


def _keep(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Store a global option in the invocation; the last occurrence wins."""
    if isinstance(ctx.obj, Invocation) and value not in (None, False, [], ()):
        ctx.obj.take(param.name or "", value)
    return value


def _global_options(
    uri: Annotated[
        str | None,
        typer.Option(
            "--uri",
            metavar="URI",
            help="Store: sqlite:///FILE or mongodb://…  [env: EDENMEM_URI]",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration file to read instead of the default ones.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Profile in the configuration file.  [env: EDENMEM_PROFILE]",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a setting, such as search.top_k=5 (repeatable).",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only",
            help="Refuse all writes to the store.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Output format: table, json, jsonl, csv or markdown.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Same as --format json.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to a file, in the format of its ending; --force overwrites it.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite the file of -o.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Print only errors on stderr.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    color: Annotated[
        ColorWhen | None,
        typer.Option(
            "--color",
            metavar="WHEN",
            help="Use color: always, auto or never.  [env: FORCE_COLOR, NO_COLOR]",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color",
            help="Same as --color never.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    verbosity: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Log to stderr; -vv adds details.",
            callback=_keep,
            expose_value=False,
        ),
    ] = 0,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            metavar="FORMAT",
            help="Format of log and notes on stderr: text or json.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback",
            help="Print the traceback of an error.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Declare the global options; only the parameters are used."""


@cache
def global_parameters(*, shown: frozenset[str] | None = None) -> tuple[Any, ...]:
    """Return the global options as parameters; help lists the ``shown`` ones (None: all)."""
    if shown is None:
        holder = _single()
        holder.command()(_global_options)
        return tuple(get_command(holder).params)
    parameters: tuple[Any, ...] = tuple(map(copy, global_parameters()))
    for parameter in parameters:
        parameter.hidden = parameter.hidden or parameter.name not in shown
    return parameters


#: Words that people try → the command that they look for.
_MEANT = {
    "add": "fact add",
    "config set": "config show",
    "dedup": "fact merge",
    "find": "search",
    "get": "show",
    "list": "fact list",
    "ls": "fact list",
    "recall": "search",
    "remove": "delete",
    "rm": "delete",
    "rollback": "undo --run",
}


class Command(TyperCommand):
    """A command that also takes the global options after its name.

    Its own options replace global ones of the same name.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        own = attributes.pop("params", None) or []
        names = {name for parameter in own for name in parameter.opts}
        shared = [p for p in global_parameters(shown=_SHOWN) if names.isdisjoint(p.opts)]
        attributes["epilog"] = attributes.get("epilog") or (
            "Global options work here too; see 'edenmem --help'."
        )
        super().__init__(*args, params=[*own, *shared], **attributes)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, ``--help`` included, with our conversion of values."""
        return lighten(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; errors carry the command."""
        try:
            return super().parse_args(ctx, args)
        except (typer.TyperException, UsageError) as error:
            if getattr(error, "ctx", None) is None:
                error.ctx = ctx  # type: ignore[union-attr]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with its output in the file of ``-o``.

        On a read-only store, a command that takes ``--dry-run`` is refused without it, before it
        calls a model. Others fail in the store.
        """
        run, given = ctx.obj, ctx.params
        if not isinstance(run, Invocation):
            return super().invoke(ctx)
        run.root, run.command, run.path = ctx.find_root(), command_line(ctx), ctx.command_path
        run.is_writing = given.get("dry_run") is False and given.get("fix") is not False
        if run.is_writing:
            run.must_write(run.path)
        if run.output in (None, "-"):
            return super().invoke(ctx)
        if "force" in given and Path(run.output).is_file():  # another --force
            raise ConflictError(f"{run.output} exists", hint="take another name")
        with redirect_output(run.output, force=run.overwrite, in_use=run.files_in_use):
            try:
                return super().invoke(ctx)
            except typer.Exit as end:  # the result is complete, such as a list of failures
                code = end.exit_code
        raise typer.Exit(code)


class Group(TyperGroup):
    """A group that prints its help when called alone, and suggests names of commands.

    Without a subcommand it runs ``default``, if it has one. ``app`` holds the registered commands.
    Each is built on request: building all of them takes longer than running one.
    """

    app: typer.Typer | None = None
    default: str = ""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of registration."""
        return [info.name or "" for info in self.app.registered_commands] if self.app else []

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Build the command with this name."""
        for info in self.app.registered_commands if self.app else ():
            if info.name == cmd_name:
                return build_command(info)
        return None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, ``--help`` included, with our conversion of values."""
        return lighten(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; without any, print the help and exit with 2."""
        if self.default and {"-h", "--help", *self.list_commands(ctx)}.isdisjoint(args[:1]):
            args = [self.default, *args]
        if not args and not ctx.resilient_parsing:
            sys.stderr.write(ctx.get_help() + "\n")
            raise typer.Exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Print the commands, then the options."""
        self.format_commands(ctx, formatter)
        TyperCommand.format_options(self, ctx, formatter)  # type: ignore[arg-type]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named command, or raise an error with the nearest names."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            words = " ".join([*ctx.command_path.split()[1:], args[0]])
            meant = _MEANT.get(words)
            if meant is None and args[0] in ctx.find_root().command.list_commands(ctx):
                meant = args[0]
            known = f"did you mean 'edenmem {meant}'?" if meant else suggest(args[0], names)
            raise UsageError(
                f"no such command: {words!r}", hint=known or f"see '{ctx.command_path} --help'"
            )
        return super().resolve_command(ctx, args)
