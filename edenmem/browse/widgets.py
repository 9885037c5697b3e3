"""Widgets: a list that reads rows on scrolling, notices for errors, and modal screens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, NamedTuple, TypeVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from edenmem.browse import words
from edenmem.engine.edits.reviewer import Reviewer
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.errors import EdenmemError, StoreUnreachable
from edenmem.text import many, printable, word_count

T = TypeVar("T")

#: Rows per page.
PAGE = 100

#: Distance from the last row at which the next page is read.
_AHEAD = 30


class Row(NamedTuple):
    """A row: its key, its text, and its item."""

    key: str
    prompt: Content
    item: Any


def show_error(app: App[Any], error: Exception) -> None:
    """Show an error as a notice."""
    title = "No connection" if isinstance(error, StoreUnreachable) else "Error"
    if isinstance(error, EdenmemError):
        message = f"{error.message}\n{error.hint}" if error.hint else error.message
    else:
        message = f"{type(error).__name__}: {error}\nthis is a bug in edenmem; please report it"
    app.notify(printable(message), title=title, severity="error", timeout=10, markup=False)


async def guard(app: App[Any], work: Awaitable[T]) -> T | None:
    """Await work and return its result; on an error, show it and return None."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - shown as a notice
        show_error(app, error)
        return None


class Rows(OptionList):
    """A list of rows, read from an iterator page by page in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False),
        Binding("k", "cursor_up", "Up", show=False),
    ]

    class Changed(Message):
        """Posted after rows were read or replaced."""

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> Rows:
            """Return the list."""
            return self.rows

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, compact=True, markup=False)
        self.rows: list[Row] = []
        self.has_more = False
        self._left: Iterator[Row] = iter(())
        self._is_reading = False

    @property
    def current(self) -> Row | None:
        """Return the highlighted row."""
        return self.at(self.highlighted)

    def at(self, place: int | None) -> Row | None:
        """Return the row at a place; None if the rows were replaced in the meantime."""
        return None if place is None or place >= len(self.rows) else self.rows[place]

    def show(self, open_rows: Callable[[], Iterable[Row]], *, keep: bool = False) -> None:
        """Replace the rows.

        Args:
            open_rows: Called in a thread; its iterator is also read in threads.
            keep: Keep the highlighted row, or its position.
        """
        self.run_worker(self._replace(open_rows, keep), group=self.id or "", exclusive=True)

    def show_now(self, rows: Iterable[Row], *, keep: bool = False) -> None:
        """Replace the rows without a thread; ``keep`` as in `show`."""
        self.workers.cancel_group(self, self.id or "")
        left = iter(rows)
        self._put(list(islice(left, self._wanted(keep))), left, keep)

    def _wanted(self, keep: bool) -> int:
        """Return the number of rows to read first."""
        return max(PAGE, (self.highlighted or 0) + 1) if keep else PAGE

    async def _replace(self, open_rows: Callable[[], Iterable[Row]], keep: bool) -> None:
        def read() -> tuple[list[Row], Iterator[Row]]:
            left = iter(open_rows())
            return list(islice(left, wanted)), left

        wanted = self._wanted(keep)
        found = await guard(self.app, in_thread(read))
        rows, left = found if found is not None else ([], iter(()))
        self._put(rows, left, keep)

    def _put(self, rows: list[Row], left: Iterator[Row], keep: bool) -> None:
        before, place = self.current, self.highlighted or 0
        keys = {row.key: number for number, row in enumerate(rows)}
        if keep and before is not None:
            place = keys.get(before.key, place)
        self.rows, self._left, self._is_reading = rows, left, False
        self.has_more = len(rows) >= PAGE
        self.set_options(Option(row.prompt) for row in rows)
        self.highlighted = min(place if keep else 0, len(rows) - 1) if rows else None
        self.post_message(self.Changed(self))

    def read_more(self) -> None:
        """Read the next page, unless it is being read."""
        if self.has_more and not self._is_reading:
            self._is_reading = True
            self.run_worker(self._extend(), group=self.id or "")

    async def _extend(self) -> None:
        left = self._left
        found = await guard(self.app, in_thread(lambda: list(islice(left, PAGE))))
        if left is not self._left:
            return  # replaced in the meantime
        self._is_reading = False
        self.has_more = found is not None and len(found) == PAGE
        if found:
            self.rows += found
            self.add_options(Option(row.prompt) for row in found)
        self.post_message(self.Changed(self))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Read more rows near the last one."""
        if event.option_index >= len(self.rows) - _AHEAD:
            self.read_more()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Read more rows when scrolled near the end."""
        super().watch_scroll_y(old_value, new_value)
        if new_value > old_value and new_value + self.size.height >= len(self.rows) - _AHEAD:
            self.read_more()


# -- modal screens ---------------------------------------------------------------------------------

_CLOSE: list[BindingType] = [
    Binding("escape,q", "dismiss(None)", "Close"),
]


class Reader(ModalScreen[None]):
    """A screen with a longer text."""

    BINDINGS: ClassVar[list[BindingType]] = _CLOSE

    def __init__(self, title: str, text: Content) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """Lay out a title and the text."""
        with Vertical(classes="window"):
            yield Static(Content(self._title), classes="heading")
            with VerticalScroll():
                yield Static(self._text, id="text")
            yield Footer(compact=True, show_command_palette=False)


class Question(ModalScreen[bool]):
    """A confirmation; the default is "no"."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes", show=False),
        Binding("n,escape,q", "dismiss(False)", "No", show=False),
        Binding("left,right", "app.focus_next", show=False),
    ]

    def __init__(self, question: str, text: Content, *, yes: str) -> None:
        super().__init__()
        self._question, self._text, self._yes = question, text, yes

    def compose(self) -> ComposeResult:
        """Lay out the question, its details, and two buttons."""
        with Vertical(classes="window question"):
            yield Static(Content(self._question), classes="heading")
            with VerticalScroll():
                yield Static(self._text, id="text")
            with Horizontal(classes="buttons"):
                yield Button(Content(f"{self._yes} (y)"), id="yes", compact=True)
                yield Button("Cancel (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """Focus the cancel button, so that Enter cancels."""
        self.query_one("#no").focus()

    @on(Button.Pressed)
    def answer(self, event: Button.Pressed) -> None:
        """Close with the answer."""
        self.dismiss(event.button.id == "yes")


class Draft(NamedTuple):
    """A text to edit.

    Attributes:
        title: The title of the editor.
        content: The current text.
        write: Writes the new text in place of the current one. Blocks.
    """

    title: str
    content: str
    write: Callable[[Reviewer, str], EditReport]


class TextEditor(ModalScreen[EditReport | None]):
    """An editor that closes when the text is saved or discarded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,f2", "save", "Save", priority=True),
        Binding("escape", "leave", "Cancel", priority=True),
    ]

    def __init__(self, service: MemoryService, draft: Draft) -> None:
        super().__init__()
        self._service, self._draft = service, draft
        self._is_writing = False

    def compose(self) -> ComposeResult:
        """Lay out the editor."""
        with Vertical(classes="window"):
            yield Static(Content(self._draft.title), classes="heading")
            yield TextArea(
                self._draft.content, id="editor", compact=True, highlight_cursor_line=False
            )
            yield Static(id="message")
            yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Move the cursor to the end of the text."""
        editor = self.query_one(TextArea)
        editor.focus()
        editor.move_cursor(editor.document.end)

    @property
    def text(self) -> str:
        """Return the text in the editor."""
        return self.query_one(TextArea).text

    @property
    def is_changed(self) -> bool:
        """Return whether there is unsaved text."""
        return self.text != self._draft.content

    @on(TextArea.Changed)
    def count_words(self) -> None:
        """Show the number of words."""
        self._tell(Content.styled(many(word_count(self.text), "word"), "dim"))

    def _tell(self, message: Content) -> None:
        self.query_one("#message", Static).update(message)

    @work(exclusive=True, group="change")
    async def action_leave(self) -> None:
        """Close, after asking about unsaved text."""
        if self._is_writing:
            return
        if self.is_changed:
            lost = words.diff(self._draft.content, self.text)
            if not await self.app.push_screen_wait(
                Question("Discard your changes?", lost, yes="Discard")
            ):
                return
        self.dismiss(None)

    @work
    async def action_save(self) -> None:
        """Save the text; keep the editor open if that fails."""
        if self._is_writing:
            return
        text = self.text
        self._is_writing = True
        self._tell(Content.styled("saving …", "dim"))
        try:
            report = await self._service.edit(lambda editor: self._draft.write(editor, text))
        except EdenmemError as error:
            self._refuse(error.advised_message)
        except Exception as error:  # noqa: BLE001 - keeps the text
            self._refuse(f"{type(error).__name__}: {error}")
        else:
            self.dismiss(report)
        finally:
            self._is_writing = False

    def _refuse(self, message: str) -> None:
        self._tell(Content.styled(printable(f"Not saved: {message}"), "$text-error"))
