"""``edenmem help``: the help of a command, or a guide from ``edenmem/docs``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any

import typer

from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.terminal.output import Output, OutputFormat
from edenmem.cli.terminal.tables import page, wrap_text
from edenmem.errors import NotFoundError

app = single()

_GUIDES = files("edenmem") / "docs"


def guide_names() -> list[str]:
    """Return the names of all guides in alphabetical order."""
    names = (entry.name for entry in _GUIDES.iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


@app.command("help", cls=Command)
def show(
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND | GUIDE]…", help="Command, or name of a guide."),
    ] = None,
    guide: Annotated[
        bool, typer.Option("--guide", "-g", help="Show the guide if a command has the same name.")
    ] = False,
) -> None:
    """Show the help of a command, or a guide. Without a name, list all.

    \b
    edenmem help fact add
    edenmem help concepts
    edenmem help --guide mcp
    """
    run = invocation(ctx)
    root: Any = ctx.find_root()
    if not topic:
        _list_both(run.out, root)
        return
    help_text = None if guide else _command_help(root, topic)
    name = " ".join(topic)
    if help_text is not None:
        sys.stdout.write(f"{help_text}\n")
        if name in guide_names():
            run.out.note(f"see also the guide: edenmem help --guide {name}")
    elif name in guide_names():
        _show_guide(run.out, (_GUIDES / f"{name}.md").read_text("utf-8"))
    else:
        known = [*guide_names(), *root.command.list_commands(root)]
        raise NotFoundError(
            f"no such command or guide: {name!r}",
            hint=suggest(name, known) or "'edenmem help' lists all",
        )


def _command_help(root: Any, words: Sequence[str]) -> str | None:
    """Return the help of a command, or None if there is no such command."""
    context: Any = root
    for word in words:
        find = getattr(context.command, "get_command", None)
        command = find(context, word) if find else None
        if command is None:
            return None
        context = command.make_context(word, [], parent=context, resilient_parsing=True)
    return str(context.get_help())


def _list_both(out: Output, root: Any) -> None:
    """Print commands and guides, in a pager on a terminal."""
    guides = (
        f"Guides: {', '.join(guide_names())}. Show one with 'edenmem help NAME', or with"
        " 'edenmem help --guide NAME' if a command has the same name."
    )
    text = "\n".join([root.get_help(), "", *wrap_text(guides, out.width)])
    if not sys.stdout.isatty():
        sys.stdout.write(f"{text}\n")
        return
    from rich.console import Console
    from rich.text import Text

    color = out.is_colored(sys.stdout)
    page(Console(no_color=not color, width=out.width, highlight=False), Text.from_ansi(text))


def _show_guide(out: Output, text: str) -> None:
    """Print Markdown: rendered in a pager on a terminal, as source elsewhere."""
    if not sys.stdout.isatty() or out.format is OutputFormat.MARKDOWN:
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    color = out.is_colored(sys.stdout)
    console = Console(no_color=not color, width=min(out.width, 88), highlight=False)
    page(console, Markdown(text, hyperlinks=False))
