"""What each command of the command line has in common: the global options, and helpful errors.

Typer carries its own copy of Click, so nothing here imports Click, and our errors are our own.
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

from edenmem.cli.app.invocation import Invocation, LogFormat, command_line
from edenmem.cli.app.parameters import add_completion, lighten, spread_groups, suggest
from edenmem.cli.terminal.files import redirect_output
from edenmem.cli.terminal.output import ColorWhen, OutputFormat
from edenmem.errors import ConflictError, ExitCode, UsageError

#: The global options that the help of each command shows.
_SHOWN = frozenset({"format", "output"})

#: Command → option of the version before → its name now.
_RENAMED = {
    "form": {"--all-due": "--due"},
    "init": {"--check": "--dry-run"},
    "migrate v1": {"--accept-incomplete": "--allow-incomplete"},
    "migrate verify": {"--accept-incomplete": "--allow-incomplete"},
    "search": {"--top-k": "--limit", "-k": "-n"},
    "stats": {"--top": "--limit"},
}


def group(help: str) -> typer.Typer:
    """A Typer application for a group of commands."""
    return typer.Typer(cls=Group, help=help, rich_markup_mode=None, add_completion=False)


def build_group(app: typer.Typer) -> Group:
    """The parser's group for an application that `group` made."""
    empty = typer.Typer(cls=Group, help=app.info.help, rich_markup_mode=None, add_completion=False)
    made = get_group(empty)
    assert isinstance(made, Group)
    made.app = app
    made.params.extend(global_parameters(shown=_SHOWN))
    return made


def build_command(info: Any) -> Any:
    """The parser's command for one that was registered."""
    holder, made = single(), copy(info)
    made.callback = spread_groups(info.callback)
    add_completion(made.callback)
    holder.registered_commands.append(made)
    return get_command(holder)


def single() -> typer.Typer:
    """A Typer application for one command without subcommands."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


def _keep(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Put a global option that was given into the invocation; the later place wins."""
    if isinstance(ctx.obj, Invocation) and value not in (None, False, [], ()):
        ctx.obj.take(param.name or "", value)
    return value


def _global_options(
    uri: Annotated[
        str | None,
        typer.Option(
            "--uri",
            metavar="URI",
            help="The store: sqlite:///FILE or mongodb://…  [env: EDENMEM_URI]",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A configuration file to read instead of the usual ones.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="A profile of the configuration file.  [env: EDENMEM_PROFILE]",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override one setting, such as search.top_k=5; may be repeated.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only",
            help="Write nothing to the store, whatever the command.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="table, json, jsonl, csv or markdown.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Short for --format json.",
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
            help="Write the result to a file instead of stdout; --force overwrites it.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With -o: overwrite the file.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="No notes on stderr, only errors.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
    color: Annotated[
        ColorWhen | None,
        typer.Option(
            "--color",
            metavar="WHEN",
            help="always, auto or never.  [env: FORCE_COLOR, NO_COLOR]",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color",
            help="Short for --color never.",
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
            help="Log what is done on stderr; -vv adds details.",
            callback=_keep,
            expose_value=False,
        ),
    ] = 0,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            metavar="FORMAT",
            help="The log and notes on stderr as text or json lines.",
            callback=_keep,
            expose_value=False,
        ),
    ] = None,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback",
            help="Show where in the code an error came from.",
            callback=_keep,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Only its parameters are used."""


@cache
def global_parameters(*, shown: frozenset[str] | None = None) -> tuple[Any, ...]:
    """The global options as the parser's parameters; in help only those ``shown`` (None: all)."""
    holder = single()
    add_completion(_global_options)
    holder.command()(_global_options)
    parameters = tuple(get_command(holder).params)
    for parameter in parameters:
        if shown is not None and parameter.name not in shown:
            parameter.hidden = True  # type: ignore[attr-defined]
    return parameters


class Command(TyperCommand):
    """A command that also takes the global options, so that they may follow its name.

    An option of its own takes the place of a global one of the same name.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        own = attributes.pop("params", None) or []
        names = {name for parameter in own for name in parameter.opts}
        shared = [p for p in global_parameters(shown=_SHOWN) if names.isdisjoint(p.opts)]
        attributes["epilog"] = attributes.get("epilog") or (
            "The options of 'edenmem --help' may be given here too."
        )
        super().__init__(*args, params=[*own, *shared], **attributes)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, ``--help`` included, with our conversion of values."""
        return lighten(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, accepting renamed options; an error carries its command."""
        try:
            return super().parse_args(ctx, _replace_renamed(ctx, args))
        except typer.TyperException as error:
            if getattr(error, "ctx", None) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command, which the audit then knows by its words."""
        run = ctx.obj
        if not isinstance(run, Invocation):
            return super().invoke(ctx)
        run.command = command_line(ctx)
        run.is_writing = _would_write(ctx.params)
        if run.is_writing:
            run.must_write(ctx.command_path)
        for old, new in run.renamed:
            run.out.note(f"warning: {old} is deprecated: use {new}")
        if run.output in (None, "-"):
            return super().invoke(ctx)
        if "force" in ctx.params and Path(run.output).exists():  # --force means another thing here
            raise ConflictError(f"{run.output} exists", hint="take another name")
        with redirect_output(run.output, force=run.overwrite):
            try:
                return super().invoke(ctx)
            except typer.Exit as end:  # the result is complete, such as a list of failures
                code = end.exit_code
        raise typer.Exit(code)


def _replace_renamed(ctx: Any, args: list[str]) -> list[str]:
    """Replace options of the version before by their names now, and keep them for a warning."""
    names = _RENAMED.get(" ".join(ctx.command_path.split()[1:]))
    if not names:
        return args
    end = args.index("--") if "--" in args else len(args)
    replaced = []
    for word in args[:end]:
        name, *value = word.split("=", 1)
        new = names.get(name)
        if new and isinstance(ctx.obj, Invocation):
            ctx.obj.renamed.append((name, new))
        replaced.append("=".join([new or name, *value]))
    return replaced + args[end:]


def _would_write(given: dict[str, Any]) -> bool:
    """Whether a command that can be tried without writing is not asked to be so. Others meet with
    the store's own refusal; these are refused before a model is paid for what cannot be kept."""
    return given.get("dry_run") is False and given.get("fix") is not False


class Group(TyperGroup):
    """A group that shows its help when it is called alone, and knows near misses.

    ``app`` holds its commands as they were registered; each is built when it is asked for, since
    building all takes longer than running one.
    """

    app: typer.Typer | None = None

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of registration."""
        return [info.name or "" for info in self.app.registered_commands] if self.app else []

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, built now."""
        for info in self.app.registered_commands if self.app else ():
            if info.name == cmd_name:
                return build_command(info)
        return None

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, ``--help`` included, with our conversion of values."""
        return lighten(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, or show the help (exit 2) if nothing was asked."""
        if not args and not ctx.resilient_parsing:
            sys.stderr.write(ctx.get_help() + "\n")
            raise typer.Exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command named, or an error that offers the nearest names."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            within = " ".join(ctx.command_path.split()[1:])
            raise UsageError(
                f"no such command: {f'{within} {args[0]}'.strip()!r}",
                hint=suggest(args[0], names) or f"see '{ctx.command_path} --help'",
            )
        return super().resolve_command(ctx, args)
