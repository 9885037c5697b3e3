"""Files that a command reads."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edenmem.errors import InputError


@contextlib.contextmanager
def lines_of(file: str) -> Iterator[IO[bytes]]:
    """The lines of a file or of stdin (``-``), as bytes: who reads them tells a bad one by its
    number.

    Raises:
        InputError: the file cannot be opened.
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
