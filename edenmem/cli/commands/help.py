"""``edenmem help``: the help of a command, or a guide from ``edenmem/docs``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, ClassVar

import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.terminal.output import Output, OutputFormat
from edenmem.cli.terminal.tables import page_text, wrap_text
from edenmem.errors import NotFoundError

_GUIDES = files("edenmem") / "docs"

_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)\s]+)\)")

#: Maximum width of names in the first column of a table that are not broken.
_LONGEST_NAME = 32


def guide_names() -> list[str]:
    """Return the names of all guides in alphabetical order."""
    names = (entry.name for entry in _GUIDES.iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def help(
    run: Invocation,
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
    root = run.root
    if not topic:
        guides = (
            f"Guides: {', '.join(guide_names())}. Show one with 'edenmem help NAME', or with"
            " 'edenmem help --guide NAME' if a command has the same name."
        )
        text = "\n".join([root.get_help(), "", *wrap_text(guides, run.out.width), ""])
        (page_text if sys.stdout.isatty() else sys.stdout.write)(text)
        return
    help_text = None if guide else _command_help(root, topic)
    name = " ".join(topic)
    if help_text is not None:
        sys.stdout.write(f"{help_text}\n")
        if name in guide_names():
            run.out.note(f"see also the guide: edenmem help --guide {name}")
    elif name in guide_names():
        text = (_GUIDES / f"{name}.md").read_text("utf-8")
        _show_guide(run.out, _COMMENT.sub("", text), root)
    else:
        known = guide_names() if guide else [*guide_names(), *root.command.list_commands(root)]
        raise NotFoundError(
            f"no such command or guide: {name!r}",
            hint=suggest(name, known) or "'edenmem help' lists all",
        )


def _command_help(root: Any, words: Sequence[str]) -> str | None:
    """Return the help of a command, or None for an unknown command."""
    context: Any = root
    for word in words:
        find = getattr(context.command, "get_command", None)
        command = find(context, word) if find else None
        if command is None:
            return None
        context = command.make_context(word, [], parent=context, resilient_parsing=True)
    return str(context.get_help())


def _show_guide(out: Output, text: str, root: Any) -> None:
    """Print Markdown: rendered in a pager on a terminal, as source elsewhere."""
    if not sys.stdout.isatty() or out.format is OutputFormat.MARKDOWN:
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.markdown import CodeBlock, Markdown, TableElement
    from rich.text import Text

    class Code(CodeBlock):
        """A code block without wrapping, for copying."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            code = str(self.text).rstrip()
            yield Text(code, style="cyan", no_wrap=True, overflow="ignore")

    class Cells(TableElement):
        """A table that cuts no word; short names in the first column are not broken either."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            for table in super().__rich_console__(console, options):
                for column in table.columns:  # type: ignore[union-attr]
                    column.overflow = "fold"
                names = table.columns[0]  # type: ignore[union-attr]
                longest = max((cell.cell_len for cell in names.cells), default=0)
                names.no_wrap = longest <= _LONGEST_NAME
                yield table

    class Guide(Markdown):
        elements: ClassVar[Any] = {
            **Markdown.elements,
            "fence": Code,
            "code_block": Code,
            "table_open": Cells,
        }

    color = out.is_colored(sys.stdout)
    console = Console(no_color=not color, width=min(out.width, 88), highlight=False)
    with console.capture() as captured:
        console.print(Guide(_name_guides(text, root), hyperlinks=False), crop=False)
    page_text(captured.get())


def _name_guides(text: str, root: Any) -> str:
    """Replace links to other guides by the command that shows them; drop other relative links."""
    commands = set(root.command.list_commands(root))

    def replace(link: re.Match[str]) -> str:
        name = link[2].partition("#")[0].removesuffix(".md")
        if name not in guide_names():
            return link[1]
        option = "--guide " if name in commands else ""
        return f"{link[1]} (`edenmem help {option}{name}`)"

    return _LINK.sub(replace, text)
