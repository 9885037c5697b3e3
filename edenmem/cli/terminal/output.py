"""Output in all formats, and progress: results go to stdout, the rest to stderr."""

from __future__ import annotations

import codecs
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

from edenmem.cli.terminal import tables
from edenmem.cli.terminal.data import keys_of, to_data, to_json
from edenmem.cli.terminal.tables import Column
from edenmem.errors import UsageError
from edenmem.models.scope import Scope
from edenmem.text import in_full, one_line, printable

if TYPE_CHECKING:
    import msgspec

    from edenmem.engine.scopes.references import Labels


T = TypeVar("T")

#: What tables and notes draw → ASCII of the same width.
_DRAWN = str.maketrans("…─━│┃╸╺→←·•×–—✓✗", "~--||--><.*x--+x")


def adapt_stream(stream: TextIO) -> None:
    """Make a stream write any text: drawings fall back to ASCII, the rest to escapes."""
    stream.reconfigure(errors="edenmem")  # type: ignore[attr-defined]


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Return what is written for characters outside the encoding, and where they end."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_DRAWN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error("edenmem", _replace)


class OutputFormat(StrEnum):
    """Format of results."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


def format_of(file: str) -> OutputFormat:
    """Return the format for the name of a file: that of its ending, or a table."""
    ending = file.removesuffix(".gz").rpartition(".")[2].lower()
    named = OutputFormat.MARKDOWN if ending == "md" else ending
    return OutputFormat(named) if named in tuple(OutputFormat) else OutputFormat.TABLE


ColorWhen = Literal["always", "auto", "never"]


def _color_from_environment() -> ColorWhen:
    """Read ``NO_COLOR`` (no-color.org), then ``FORCE_COLOR`` (force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return "never"
    if os.environ.get("FORCE_COLOR"):
        return "always"
    return "never" if os.environ.get("TERM") == "dumb" else "auto"


class Output:
    """Prints results in one format, and notes on stderr.

    Text is made printable in table and markdown. It is exact in data formats, where JSON escapes
    control characters.
    """

    def __init__(
        self,
        format: OutputFormat,
        *,
        quiet: bool = False,
        color: ColorWhen | None = None,
        notes: Callable[[str], None] | None = None,
        advise: Callable[[str], str] = str,
        find_names: Callable[[Iterable[Scope | str]], Labels] | None = None,
    ) -> None:
        self.format = format
        #: Complete the commands that a text suggests.
        self.advise = advise
        self._quiet = quiet
        self._find_names = find_names
        self._notes = notes
        self._color = color or _color_from_environment()

    @property
    def is_data(self) -> bool:
        """Return whether the format is a data format."""
        return self.format in (OutputFormat.JSON, OutputFormat.JSONL, OutputFormat.CSV)

    @property
    def is_screen(self) -> bool:
        """Return whether results go to a terminal as a table."""
        return self.format is OutputFormat.TABLE and sys.stdout.isatty()

    @property
    def width(self) -> int:
        """Return the width of the terminal, ``COLUMNS``, or 80."""
        return shutil.get_terminal_size().columns

    def is_colored(self, stream: Any) -> bool:
        """Return whether to use color on a stream."""
        if self._color == "auto":
            return bool(stream.isatty())
        return self._color == "always"

    def style(self, text: str, code: str) -> str:
        """Apply an ANSI style to a text for stdout, if color is used."""
        return tables.style(text, code, self.is_colored(sys.stdout))

    @property
    def shows_progress(self) -> bool:
        """Return whether to show progress on stderr."""
        return not self._quiet and sys.stderr.isatty()

    # -- stderr ------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Print a note on stderr, unless ``--quiet``."""
        text = self.advise(text)
        if self._notes is not None and not self._quiet:
            self._notes(text)
        elif not self._quiet:
            sys.stdout.flush()  # keeps the order on a terminal
            sys.stderr.write(self._wrap_lines(printable(text), sys.stderr) + "\n")

    def notes(self, texts: Iterable[str | None]) -> None:
        """Print notes, without empty ones."""
        for text in filter(None, texts):
            self.note(text)

    def progress(self, text: str) -> None:
        """Print a note about progress on a terminal."""
        if self.shows_progress:
            self.note(text)

    # -- results in data formats -------------------------------------------------------------

    def data(
        self, rows: Iterable[T], data: Callable[[T], dict[str, Any]] = to_data, *, header: Any = ()
    ) -> bool:
        """Print rows in a data format; return False in the formats for people.

        ``header`` is the keys of the data, or the type of the rows, for CSV without rows.
        """
        if self.is_data:
            keys = keys_of(header) if isinstance(header, type) else header
            self._stream(map(data, rows), keys)
        return self.is_data

    def datum(
        self, row: T, data: Callable[[T], dict[str, Any]] = to_data, *, indent: int = 2
    ) -> bool:
        """Print one object in a data format, as `data`; JSON is an object instead of a list."""
        if self.format is not OutputFormat.JSON:
            return self.data([row], data)
        self.line(to_json(data(row), indent=indent))
        return True

    def _stream(self, items: Iterable[dict[str, Any]], header: Sequence[str]) -> None:
        if self.format is OutputFormat.CSV:
            self._csv(items, header)
        elif self.format is OutputFormat.JSONL:
            for item in items:
                self.line(to_json(item))
        else:
            lead = "[\n  "
            for item in items:
                sys.stdout.write(lead + to_json(item, indent=2).replace("\n", "\n  "))
                lead = ",\n  "
            self.line("[]" if lead[0] == "[" else "\n]")

    def _csv(self, items: Iterable[dict[str, Any]], header: Sequence[str]) -> None:
        """Print CSV with the keys as header; lists and objects are JSON.

        A spreadsheet would run text that begins with ``=``, ``+``, ``-`` or ``@`` as a formula.
        Such text gets a leading apostrophe; JSON is exact.
        """
        import csv

        iterator = iter(items)
        first = next(iterator, None)
        keys = list(header if first is None else first)
        if not keys:
            return
        writer = csv.DictWriter(sys.stdout, keys, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for item in itertools.chain([] if first is None else [first], iterator):
            writer.writerow({key: _csv_cell(value) for key, value in item.items()})

    # -- results for people ------------------------------------------------------------------

    def listing(
        self,
        rows: Iterable[T],
        columns: Sequence[Column[T]],
        *,
        limit: int = 0,
        data: Callable[[T], dict[str, Any]] = to_data,
        empty: str = "nothing found",
        header: Sequence[str] | type[msgspec.Struct] = (),
        order: str = "first",
    ) -> None:
        """Print rows, up to ``limit`` (0: no limit), with a note if there are more.

        ``header`` is as for `data`. The note says that the ``order`` rows are shown, such as the
        "newest".
        """
        iterator = iter(rows)
        wanted = itertools.islice(iterator, limit) if limit else iterator
        if not self.data(wanted, data, header=header):
            self._table(list(wanted), columns, empty)
        if limit and next(iterator, None) is not None:
            self.note(f"showing the {order} {limit}; --limit 0 shows all")

    def _table(self, rows: list[T], columns: Sequence[Column[T]], empty: str) -> None:
        if any(column.names for column in columns):
            columns = self._name_cells(columns, rows)
        if not rows:
            self.note(empty)
        elif self.format is OutputFormat.MARKDOWN:
            self.line(tables.markdown_table(columns, rows))
        elif sys.stdout.isatty():
            color = self.is_colored(sys.stdout)
            lines = tables.screen_table(columns, rows, self.width, color=color)
            tables.page_text("\n".join([*lines, ""]))
        else:
            self.line("\n".join(tables.plain_table(columns, rows)))

    def _name_cells(self, columns: Sequence[Column[T]], rows: Sequence[T]) -> list[Column[T]]:
        """Return the columns with names in place of scopes and IDs, looked up at once."""
        assert self._find_names is not None
        named = [column.value(row) for column in columns if column.names for row in rows]
        found = self._find_names(
            item
            for value in named
            for item in (value if isinstance(value, tuple) else (value,))
            if isinstance(item, Scope) or (isinstance(item, str) and item)
        )
        return [
            column._replace(value=partial(_name_of, column, found)) if column.names else column
            for column in columns
        ]

    def record(
        self,
        row: T,
        fields: Sequence[tuple[str, object]],
        *,
        text: str = "",
        data: Callable[[T], dict[str, Any]] = to_data,
    ) -> None:
        """Print one object in full: its fields, then its long ``text``."""
        if not self.datum(row, data):
            self.fields(fields)
            if text:
                self.line("\n" + self._wrap_lines(printable(text), sys.stdout))

    def fields(self, fields: Sequence[tuple[str, object]]) -> None:
        """Print labeled values, without empty ones."""
        pairs = [(label, value) for label, value in fields if value not in (None, "", (), [])]
        if self.format is OutputFormat.MARKDOWN:
            columns: list[Column[tuple[str, object]]] = [
                Column("field", lambda pair: pair[0]),
                Column("value", lambda pair: in_full(pair[1])),
            ]
            self.line(tables.markdown_table(columns, pairs))
            return
        width = max((len(label) for label, _ in pairs), default=0)
        for label, value in pairs:
            title = f"{self.style(label.ljust(width), '1')}  "
            self.paragraph(title, in_full(value), indent=width + 2)

    def people_only(self) -> None:
        """Refuse data formats.

        Raises:
            UsageError: A data format was requested.
        """
        if self.is_data:
            raise UsageError(f"this command does not support --format {self.format}")

    def heading(self, text: str) -> None:
        """Print a heading."""
        self.line(self.style(one_line(text), "1;36"))

    def section(self, title: str) -> None:
        """Print a heading after an empty line."""
        self.line()
        self.heading(title)

    def paragraph(self, title: str, text: str, *, indent: int | None = None) -> None:
        """Print a title and a text of one line, wrapped with a hanging indent."""
        indent = len(title) if indent is None else indent
        first, *others = tables.wrap_text(one_line(text), self.width - indent)
        self.line("\n".join([title + first, *(" " * indent + line for line in others)]))

    def passage(self, title: str, text: str) -> None:
        """Print a title, and an indented text below it."""
        self.line(self.style(one_line(title), "1"))
        for line in self._wrap_lines(printable(text), sys.stdout, indent=2).splitlines():
            self.line(f"  {line}")

    def document(self, text: str) -> None:
        """Print a text that is the result: exact in a pipe, printable on a terminal."""
        self.line(printable(text) if sys.stdout.isatty() else text)

    def safe(self, text: str) -> None:
        """Print text, made printable."""
        self.line(printable(text))

    def line(self, text: str = "") -> None:
        """Print a line of safe text."""
        sys.stdout.write(text + "\n")

    def _wrap_lines(self, text: str, stream: Any, *, indent: int = 0) -> str:
        """Wrap a text for a terminal."""
        if self.format is OutputFormat.MARKDOWN or not stream.isatty():
            return text
        return tables.wrap_lines(text, self.width - indent)


def _name_of(column: Column[T], names: Labels, row: T) -> str:
    """Return the names of a cell's scope or accounts."""
    match column.value(row):
        case Scope() as scope if column.names == "full":
            return names.full(scope)
        case Scope() as scope if column.names == "owner":
            return names[scope.owner]
        case Scope() as scope:
            return names.within_agent(scope)
        case tuple() as several:
            return ", ".join(names[each] for each in several)
        case account:
            return names[str(account)] if account else ""


def _csv_cell(value: object) -> object:
    """Format a cell of CSV, made printable."""
    if isinstance(value, dict | list):
        return to_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") else text


# -- progress --------------------------------------------------------------------------------------


class Progress:
    """Progress bars below the output, removed at the end."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._lines: Any = None
        self._tasks: dict[str, Any] = {}

    def step(self, step: str, done: int = 0, total: int = 0, *, key: str | None = None) -> None:
        """Show the progress of a step; ``total`` 0 is unknown."""
        if not self._out.shows_progress:
            return
        if self._lines is None:
            self._lines = self._start()
        key = step if key is None else key
        count = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
        if key not in self._tasks:
            self._tasks[key] = self._lines.add_task(step, total=None, count="")
        self._lines.update(
            self._tasks[key], description=step, completed=done, total=total or None, count=count
        )

    def say(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show a text in place of the previous one."""
        self.step(text, done, total, key="")

    def _start(self) -> Any:
        from rich import progress
        from rich.console import Console

        bars = progress.Progress(
            progress.TextColumn("{task.description:<10}", markup=False),
            progress.BarColumn(24),
            progress.TextColumn("{task.fields[count]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True, no_color=not self._out.is_colored(sys.stderr)),
            transient=True,
        )
        bars.start()
        return bars

    def pause(self) -> None:
        """Remove the bars until the next step, to print something."""
        if self._lines is not None:
            self._lines.stop()
            self._lines = None
            self._tasks.clear()


@contextmanager
def show_progress(out: Output) -> Iterator[Progress]:
    """Yield a progress display."""
    shown = Progress(out)
    try:
        yield shown
    finally:
        shown.pause()
