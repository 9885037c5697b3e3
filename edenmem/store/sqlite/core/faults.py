"""The one place where SQLite's errors become edenmem's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edenmem.errors import DocumentDamaged, EdenmemError, InputError, StoreError, StoreReadOnly

#: Primary result code → what to say after the file's name, and what to do.
_FAULTS: dict[int, tuple[str, str | None]] = {
    sqlite3.SQLITE_BUSY: (
        "is locked by another process for longer than the timeout",
        "wait for the other process, or raise store.busy_timeout_seconds",
    ),
    sqlite3.SQLITE_LOCKED: (
        "is locked by another connection",
        "try again, or raise store.busy_timeout_seconds",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written",
        "check who owns the file and its folder: SQLite also writes '-wal' and '-shm' beside it",
    ),
    sqlite3.SQLITE_PERM: ("may not be opened", "check who owns the file and its folder"),
    sqlite3.SQLITE_AUTH: ("may not be opened", "check who owns the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "check that its folder exists and may be written, also for '-wal' and '-shm'",
    ),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and try again"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", None),
    sqlite3.SQLITE_CORRUPT: (
        "is damaged",
        "restore a backup, or save what can be read with 'sqlite3 FILE .recover'",
    ),
    sqlite3.SQLITE_NOTADB: (
        "is not an edenmem database",
        "name another file with --uri or EDENMEM_URI",
    ),
    sqlite3.SQLITE_NOMEM: ("cannot be used: there is not enough memory", None),
}


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system raise about the file into a `StoreError`.

    Text or numbers that no database can hold are an `InputError`. A programming error of ours
    stays what it is.
    """
    try:
        yield
    except EdenmemError:
        raise
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeEncodeError as error:
        raise InputError(
            "a text has lone surrogates in it, which no database can hold",
            hint="pass it through edenmem.text.clean() first",
        ) from error
    except OverflowError as error:
        raise InputError("a number does not fit into 64 bits") from error


def _translate(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and str(error).startswith("Could not decode to UTF-8"):
        return DocumentDamaged(
            f"{path} has a text that is not UTF-8",
            hint="'edenmem doctor' names the rows that cannot be read",
        )
    if code is None:  # raised by the module itself: we called it wrongly
        return error
    if code & 0xFF == sqlite3.SQLITE_TOOBIG:
        return InputError("a text or vector is larger than SQLite can hold")
    said, hint = _FAULTS.get(code & 0xFF, (f"gave an error: {error}", None))
    kind = StoreReadOnly if code & 0xFF == sqlite3.SQLITE_READONLY else StoreError
    return kind(f"{path} {said}", hint=hint)
