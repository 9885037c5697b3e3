"""Tables for terminals, pipes and Markdown. Cells are never parsed as markup."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from edenmem.cli.terminal.times import ago, iso
from edenmem.text import cut_line, display_width, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


T = TypeVar("T")

_GAP = 2
#: Maximum number of lines of a text in the last column on a terminal.
_LINES = 3
#: Digits of seconds and counter in an ID, which separate IDs outside of the list.
_SHORTEST_ID = 14
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#])")


class Column(NamedTuple, Generic[T]):
    """A column: its title, and a function from a row to its cell.

    ``id`` columns are cut to a unique prefix that commands accept. ``name`` columns contain names
    that commands accept, and are cut last. ``text`` columns share the remaining width. ``state``
    columns are never cut. A ``sentence`` column, the last one, is wrapped on a terminal and whole
    in a pipe.

    The cells of a column with ``names`` are scopes, or IDs of accounts: "scope" shows a scope
    within its agent, "place" with its agent, "owner" the owner alone, "account" an account.
    """

    title: str
    value: Callable[[T], object]
    kind: Literal["plain", "id", "name", "text", "number", "time", "state", "sentence"] = "plain"
    names: Literal["", "scope", "place", "owner", "account"] = ""


def format_cell(value: object) -> str:
    """Format a cell on one line."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return ago(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return one_line(str(value))


def unique_beginnings(ids: Sequence[str]) -> dict[str, str]:
    """Map each ID to its shortest unique prefix of 14 or more digits."""
    ordered = sorted(set(ids))
    short: dict[str, str] = {}
    for place, full in enumerate(ordered):
        length = _SHORTEST_ID
        for other in ordered[max(place - 1, 0) : place] + ordered[place + 1 : place + 2]:
            common = next(
                (i for i, (a, b) in enumerate(zip(full, other, strict=False)) if a != b), 0
            )
            length = max(length, common + 1)
        short[full] = full[:length]
    return short


def _texts(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[list[str]]:
    """Format the cells of each column."""
    result = []
    for column in columns:
        values = [column.value(row) for row in rows]
        if column.kind == "id":
            short = unique_beginnings([str(value) for value in values if value])
            result.append([format_cell(short.get(str(value), value)) for value in values])
        else:
            result.append([format_cell(value) for value in values])
    return result


def _select_columns(columns: Sequence[Column[T]], cells: list[list[str]]) -> list[int]:
    """Return the columns with content, to save the width of empty ones."""
    return [
        place for place, column in enumerate(cells) if any(column) or columns[place].kind == "text"
    ]


def plain_table(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[str]:
    """Format a table for a pipe: aligned, cut to ``width``, without lines."""
    cells = _texts(columns, rows)
    kept = _select_columns(columns, cells)
    widths = _widths([columns[i] for i in kept], [cells[i] for i in kept], width)
    lines = [[columns[i].title for i in kept]] + [
        [cells[i][row] for i in kept] for row in range(len(rows))
    ]
    kinds = [columns[i].kind for i in kept]
    return [_line(line, widths, kinds) for line in lines]


#: Kinds of columns to cut if a line is too long, and the widths that remain. IDs, numbers and
#: times are never cut.
_SHRINKABLE = (
    ("sentence", 30),
    ("text", 36),
    ("plain", 16),
    ("text", 16),
    ("plain", 9),
    ("text", 8),
    ("plain", 6),
    ("name", 8),
)


def _widths(columns: Sequence[Column[T]], cells: list[list[str]], width: int) -> list[int]:
    """Return the widths of the columns that fit."""
    widths = [
        max([display_width(column.title), *map(display_width, column_cells)])
        for column, column_cells in zip(columns, cells, strict=True)
    ]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    for kind, kept in _SHRINKABLE:
        # widest first, to keep short columns whole
        for place in sorted(range(len(widths)), key=lambda i: -widths[i]):
            if over > 0 and columns[place].kind == kind:
                floor = max(kept, display_width(columns[place].title))
                taken = min(over, max(widths[place] - floor, 0))
                widths[place] -= taken
                over -= taken
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], kinds: Sequence[str]) -> str:
    parts = []
    for cell, width, kind in zip(cells, widths, kinds, strict=True):
        text = _fit(cell, width, kind)
        space = " " * (width - display_width(text))
        parts.append(space + text if kind == "number" else text + space)
    return (" " * _GAP).join(parts).rstrip()


def _fit(cell: str, width: int, kind: str) -> str:
    """Cut a cell to the width of its column, unless it is wrapped."""
    return cell if kind == "sentence" else cut_line(cell, width)


def print_rich_table(columns: Sequence[Column[T]], rows: Sequence[T], *, color: bool) -> None:
    """Print a table on a terminal with Rich, through the pager if it is long.

    Each cell is a `Text`, so that markup is not parsed.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False, no_color=not color)
    cells = _texts(columns, rows)
    kept = _select_columns(columns, cells)
    widths = _widths([columns[i] for i in kept], [cells[i] for i in kept], console.width)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),  # with the divider, a gap of two
        header_style="bold",
    )
    wrapped = kept[-1] if kept and columns[kept[-1]].kind == "text" else None
    for place, width in zip(kept, widths, strict=True):
        column = columns[place]
        is_wrapped = column.kind == "sentence" or place == wrapped
        table.add_column(
            Text(column.title),
            width=width,
            justify="right" if column.kind == "number" else "left",
            style="cyan" if column.kind == "id" else "dim" if column.kind == "time" else "",
            no_wrap=not is_wrapped,
            overflow="fold" if is_wrapped else "ellipsis",
        )
    for row in range(len(rows)):
        table.add_row(
            *(
                Text(
                    _fit(cells[i][row], width * _LINES if i == wrapped else width, columns[i].kind)
                )
                for i, width in zip(kept, widths, strict=True)
            )
        )
    if len(console.render_lines(table)) + 1 > console.height:  # with the prompt
        page(console, table)
    else:
        console.print(table)


def page(console: Console, content: RenderableType) -> None:
    """Print through the system's pager (``PAGER``)."""
    os.environ.setdefault("LESS", "FRX")  # as Git: keep color, exit if it fits one screen
    with console.pager(styles=True):
        console.print(content, crop=False)


def page_text(text: str, *, color: bool) -> None:
    """Print text with ANSI styles, through the pager if it is longer than the terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(no_color=not color, highlight=False)
    if text.count("\n") < console.height:
        sys.stdout.write(text)
    else:
        page(console, Text.from_ansi(text.rstrip("\n")))


def markdown_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> str:
    """Format a Markdown table with full texts, IDs and times; markup is escaped."""
    from tabulate import tabulate

    def cell(column: Column[T], row: T) -> str:
        value = column.value(row)
        return markdown_escape(iso(value) if isinstance(value, datetime) else format_cell(value))

    return tabulate(
        [[cell(column, row) for column in columns] for row in rows],
        headers=[column.title for column in columns],
        tablefmt="github",
        disable_numparse=True,
        colalign=["right" if column.kind == "number" else "left" for column in columns]
        if rows
        else None,
    )


def markdown_escape(text: str) -> str:
    """Escape Markdown markup."""
    return _MARKDOWN.sub(r"\\\1", text)


def _breakable(text: str, width: int) -> Iterator[str]:
    """Yield the words of a text, splitting long runs of wide characters."""
    for word in text.split(" "):
        if display_width(word) <= max(width, 2) or display_width(word) == len(word):
            yield word
            continue
        part = ""
        for character in word:
            if part and display_width(part + character) > width:
                yield part
                part = ""
            part += character
        yield part


def style(text: str, code: str, color: bool) -> str:
    """Apply an ANSI style (``1`` bold, ``2`` dim, ``31`` red …) if ``color``."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def in_full(value: object) -> str:
    """Format a value in full, with times absolute and relative."""
    if isinstance(value, datetime):
        return f"{iso(value)} ({ago(value)})"
    if isinstance(value, list | tuple):
        return ", ".join(format_cell(entry) for entry in value)
    return format_cell(value)


def wrap_text(text: str, width: int) -> list[str]:
    """Wrap a text of one line between words.

    A word longer than a line stays whole for copying, unless its script has no spaces.
    """
    lines, used = [""], 0
    for word in _breakable(text, width):
        wide = display_width(word)
        if used and used + 1 + wide > width:
            lines.append(word)
            used = wide
        else:
            lines[-1] += f" {word}" if used else word
            used += wide + (1 if used else 0)
    return lines


def format_amount(cost: float) -> str:
    """Format an amount without the currency."""
    return f"{cost:.4f}"


def format_cost(cost: float | None) -> str:
    """Format a cost with the currency; None is an unknown price."""
    if cost is None:
        return "cost unknown"
    return f"${format_amount(cost)}" if cost else "no cost"
