"""Files that a command reads and writes."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from edenmem.errors import InputError, unreadable


def file_name(file: str) -> str:
    """Return the name of a file in messages."""
    return "stdin" if file == "-" else file


@contextlib.contextmanager
def name_file(file: str) -> Iterator[None]:
    """Add the name of the file to errors about its lines: ``FILE:LINE: …``."""
    try:
        yield
    except InputError as error:
        if error.line is not None:
            error.name_file(file_name(file))
        raise


@contextlib.contextmanager
def lines_of(file: str) -> Iterator[IO[bytes]]:
    """Open a file or stdin (``-``) and yield its lines as bytes. Errors in lines name the file.

    Raises:
        NotFoundError: The file does not exist.
        InputError: The file cannot be opened.
    """
    with contextlib.ExitStack() as opened, name_file(file):
        if file == "-":
            yield sys.stdin.buffer
            return
        try:
            lines = opened.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise unreadable(file, error) from error
        yield lines


@contextlib.contextmanager
def redirect_output(
    file: str | None, *, force: bool, in_use: Callable[[], Iterable[Path]]
) -> Iterator[None]:
    """Send stdout to a file that takes its name only when all of it is written.

    A name that ends in ``.gz`` is compressed. If the body raises, no file is left. ``in_use``
    returns files never to overwrite. Without a file, or with ``-``, stdout stays.

    Raises:
        ConflictError: The file exists and ``force`` is false.
        UsageError: The file is in use.
        InputError: The file cannot be written.
        DiskFull: The disk has no room for it.
    """
    if file is None or file == "-":
        yield
        return
    from edenmem.engine.exchange.files import open_for_writing

    is_gzip = file.endswith(".gz")
    with open_for_writing(file, compress=is_gzip, force=force, in_use=in_use) as raw:
        text = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", newline="\n")
        with contextlib.redirect_stdout(text):
            yield
        text.detach()  # flushes; the raw file stays open
