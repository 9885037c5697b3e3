"""Files that a command reads and writes."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from edenmem.errors import ConflictError, InputError


def write_whole(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file that only its owner may read, since memory is in it. Whatever happens, there
    is the old file or the whole new one.

    Raises:
        ConflictError: it is there already and may not be replaced.
        InputError: it cannot be written.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            Path(temporary).replace(path)
        else:
            os.link(temporary, path)  # refuses to replace, whoever made it meanwhile
    except FileExistsError:
        raise ConflictError(
            f"{path} exists already", hint="take another name, or add --force"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            Path(temporary).unlink(missing_ok=True)


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
