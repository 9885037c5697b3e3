"""Files that a command reads and writes."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edenmem.errors import InputError


@contextlib.contextmanager
def lines_of(file: str) -> Iterator[IO[bytes]]:
    """Open a file or stdin (``-``) and yield its lines as bytes.

    Raises:
        InputError: The file cannot be opened.
    """
    if file == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as opened:
        try:
            lines = opened.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        yield lines


@contextlib.contextmanager
def redirect_output(file: str, *, force: bool) -> Iterator[None]:
    """Send stdout to a file that takes its name only when all of it is written.

    A name that ends in ``.gz`` is compressed. If the body raises, no file is left.

    Raises:
        ConflictError: The file exists and ``force`` is false.
        InputError: The file cannot be written.
        DiskFull: The disk has no room for it.
    """
    from edenmem.engine.exchange.files import open_for_writing

    with open_for_writing(file, compress=file.endswith(".gz"), force=force) as raw:
        text = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", newline="\n")
        with contextlib.redirect_stdout(text):
            yield
        text.detach()  # flushes; the raw file stays open
