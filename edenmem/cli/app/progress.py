"""A bar for each step of long work, on a terminal; in a pipe nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from edenmem.cli.app.invocation import Invocation

#: Called with the step, how much of it is done, and how much it is; 0: nobody knows.
Tell = Callable[[str, int, int], None]


@contextmanager
def steps(run: Invocation) -> Iterator[Tell]:
    """What to call as the work goes on."""
    if run.quiet or not sys.stderr.isatty():
        yield lambda step, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, no_color=not run.out.is_colored(sys.stderr))
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def tell(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total or None)
            progress.update(tasks[step], completed=done, total=total or None)

        yield tell
