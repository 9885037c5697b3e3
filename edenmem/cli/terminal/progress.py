"""Progress of long work on a terminal; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edenmem.cli.terminal.output import Output


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
            self._lines = _draw(self._out)
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

    def pause(self) -> None:
        """Remove the bars until the next step, to print something."""
        if self._lines is not None:
            self._lines.stop()
            self._lines = None
            self._tasks.clear()


def _draw(out: Output) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    lines = Progress(
        TextColumn("{task.description:<10}", markup=False),
        BarColumn(24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, no_color=not out.is_colored(sys.stderr)),
        transient=True,
    )
    lines.start()
    return lines


@contextmanager
def show_progress(out: Output) -> Iterator[Progress]:
    """Yield a progress display."""
    shown = Progress(out)
    try:
        yield shown
    finally:
        shown.pause()
