"""Tables for terminals, pipes and Markdown. Cells are never parsed as markup."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Generic, Literal, NamedTuple, TypeVar

from edenmem.text import cell, cut_line, display_width, iso

T = TypeVar("T")

_GAP = 2
#: Maximum number of lines of a text in the last column on a terminal.
_LINES = 3
#: Minimum width of a last column on a terminal; a narrower one is printed below its row.
_ROOM = 36
#: Digits of seconds and counter in an ID, which separate IDs outside of the list.
_SHORTEST_ID = 14
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#])")
#: Kind of a column → ANSI style.
_STYLES = {"id": "36", "time": "2"}


class Column(NamedTuple, Generic[T]):
    """A column: its title, and a function from a row to its cell.

    ``id`` columns are cut to a unique prefix that commands accept. ``name`` columns contain names
    that commands accept in place of the ID, and are cut last. ``text`` columns share the remaining
    width. ``state`` columns are never cut. A ``sentence`` column, the last one, is wrapped on a
    terminal and whole in a pipe. On a narrow terminal, a text or sentence in the last column is
    printed below its row.

    The cells of a column with ``names`` are scopes, or IDs of accounts: "scope" shows a scope
    within its agent, "full" with its agent, "owner" the owner alone, "account" an account.
    """

    title: str
    value: Callable[[T], object]
    kind: Literal["plain", "id", "name", "text", "number", "time", "state", "sentence"] = "plain"
    names: Literal["", "scope", "full", "owner", "account"] = ""


def unique_beginnings(ids: Sequence[str]) -> dict[str, str]:
    """Map each ID to its shortest unique prefix of 14 or more digits."""
    ordered = sorted(set(ids))
    pairs = itertools.pairwise(ordered)
    shared = [len(os.path.commonprefix(pair)) for pair in pairs]  # noqa: RUF071 - of strings
    lengths = map(max, [0, *shared], [*shared, 0])
    return {
        full: full[: max(_SHORTEST_ID, length + 1)]
        for full, length in zip(ordered, lengths, strict=False)
    }


class _Shown(NamedTuple):
    """A column that is shown: its kind, its width, and its formatted title and cells."""

    kind: str
    width: int
    cells: list[str]


def _lay_out(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> list[_Shown]:
    """Format the cells of the columns with content, and divide the width among them."""
    shown = []
    for column in columns:
        values = [column.value(row) for row in rows]
        if column.kind == "id":
            short = unique_beginnings([str(value) for value in values if value])
            values = [short.get(str(value), value) for value in values]
        cells = [cell(value) for value in values]
        if any(cells) or column.kind == "text":
            widest = max(map(display_width, [column.title, *cells]))
            shown.append(_Shown(column.kind, widest, [column.title, *cells]))
    over = sum(each.width for each in shown) + _GAP * (len(shown) - 1) - width
    for kind, kept in _SHRINKABLE:
        # widest first, to keep short columns whole
        for place in sorted(range(len(shown)), key=lambda i: -shown[i].width):
            each = shown[place]
            if over > 0 and each.kind == kind:
                floor = max(kept, display_width(each.cells[0]))
                taken = min(over, max(each.width - floor, 0))
                shown[place] = each._replace(width=each.width - taken)
                over -= taken
    if over > 0 and any(each.kind == "name" and all(each.cells) for each in shown):
        named = [column for column in columns if column.kind != "id"]
        return shown if len(named) == len(columns) else _lay_out(named, rows, width)
    return shown


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


def plain_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> list[str]:
    """Format a table for a pipe: aligned, one line for each row, with whole texts."""
    shown = _lay_out(columns, rows, sys.maxsize)
    return [_join(_fit(each, each.cells[row]) for each in shown) for row in range(len(rows) + 1)]


def screen_table(
    columns: Sequence[Column[T]], rows: Sequence[T], width: int, *, color: bool
) -> list[str]:
    """Format a table for a terminal: styled, with a wrapped last text."""
    shown = _lay_out(columns, rows, width)
    last, below = shown[-1], list[str]()
    is_narrow = last.width < min(_ROOM, max(map(display_width, last.cells)))
    if len(shown) > 1 and last.kind in ("text", "sentence") and is_narrow:
        shown, below = _lay_out(columns[:-1], rows, width), last.cells
    lines = []
    for row in range(len(rows) + 1):
        cells = [_wrap_cell(each, row, is_last=each is last) for each in shown]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            codes = ["1" if row == 0 else _STYLES.get(each.kind, "") for each in shown]
            lines.append(_join(map(_fit, shown, parts, codes if color else [""] * len(shown))))
        if row == 0:
            lines.append("─" * (sum(each.width for each in shown) + _GAP * (len(shown) - 1)))
        elif below and below[row]:
            most = (width - _GAP) * _LINES if last.kind == "text" else sys.maxsize
            wrapped = wrap_text(cut_line(below[row], most), width - _GAP, fold=True)
            lines += [" " * _GAP + line for line in wrapped]
    return lines


def _wrap_cell(column: _Shown, row: int, *, is_last: bool) -> list[str]:
    """Return the lines of a cell on a terminal."""
    if column.kind == "sentence":
        return wrap_text(column.cells[row], column.width, fold=True)
    if is_last and column.kind == "text":
        some = cut_line(column.cells[row], column.width * _LINES)
        return wrap_text(some, column.width, fold=True)
    return [cut_line(column.cells[row], column.width)]


def _fit(column: _Shown, text: str, code: str = "") -> str:
    """Pad a part of a cell to the width of its column, and style it."""
    space = " " * (column.width - display_width(text))
    text = style(text, code, bool(code and text))
    return space + text if column.kind == "number" else text + space


def _join(cells: Iterable[str]) -> str:
    return (" " * _GAP).join(cells).rstrip()


def page_text(text: str) -> None:
    """Print text with ANSI styles, through the pager (``PAGER``) if the terminal is shorter."""
    if text.count("\n") < shutil.get_terminal_size().lines:
        sys.stdout.write(text)
        return
    import pydoc

    os.environ.setdefault("LESS", "FRX")  # as Git: keep color, exit if it fits one screen
    pydoc.pager(text)


def markdown_table(columns: Sequence[Column[T]], rows: Sequence[T]) -> str:
    """Format a Markdown table with full texts, IDs and times; markup is escaped."""
    from tabulate import tabulate

    def escaped(column: Column[T], row: T) -> str:
        value = column.value(row)
        shown = iso(value) if isinstance(value, datetime) else cell(value)
        return _MARKDOWN.sub(r"\\\1", shown)

    return tabulate(
        [[escaped(column, row) for column in columns] for row in rows],
        headers=[column.title for column in columns],
        tablefmt="github",
        disable_numparse=True,
        colalign=["right" if column.kind == "number" else "left" for column in columns]
        if rows
        else None,
    )


def style(text: str, code: str, color: bool) -> str:
    """Apply an ANSI style (``1`` bold, ``2`` dim, ``31`` red …) if ``color``."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def wrap_text(text: str, width: int, *, fold: bool = False) -> list[str]:
    """Wrap a text of one line between words.

    A word longer than a line stays whole for copying, unless its script has no spaces, or ``fold``.
    """
    lines, used = [""], 0
    for word in _breakable(text, width, fold):
        wide = display_width(word)
        if used and used + 1 + wide > width:
            lines.append(word)
            used = wide
        else:
            lines[-1] += f" {word}" if used else word
            used += wide + (1 if used else 0)
    return lines


def wrap_lines(text: str, width: int, *, hang: int | None = None) -> str:
    """Wrap the lines of a text, each as far indented as it begins, or by ``hang``."""
    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        lead = line[: len(line) - len(words)]
        indent = lead if hang is None else " " * hang
        first, *others = wrap_text(words, max(width - max(len(lead), len(indent)), 20))
        lines += [lead + first, *(indent + each for each in others)]
    return "\n".join(lines)


def _breakable(text: str, width: int, fold: bool) -> Iterator[str]:
    """Yield the words of a text, splitting long runs of wide characters, or all with ``fold``."""
    for word in text.split(" "):
        wide = display_width(word)
        if wide <= max(width, 2) or (wide == len(word) and not fold):
            yield word
            continue
        part = ""
        for character in word:
            if part and display_width(part + character) > width:
                yield part
                part = ""
            part += character
        yield part


def format_amount(cost: float) -> str:
    """Format an amount without the currency."""
    return f"{cost:.4f}"


def format_cost(cost: float | None) -> str:
    """Format a cost with the currency; None is an unknown price."""
    if cost is None:
        return "cost unknown"
    return f"${format_amount(cost)}" if cost else "no cost"
