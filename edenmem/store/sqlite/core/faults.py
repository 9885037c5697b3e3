"""Translation of SQLite's errors into those of edenmem."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edenmem.errors import (
    DocumentDamaged,
    EdenmemError,
    InputError,
    StoreDamaged,
    StoreError,
    StoreReadOnly,
)

#: Primary result code → text after the file name, and hint.
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
        "check who owns the file and its folder: SQLite also writes '-wal' and '-shm' files there",
    ),
    sqlite3.SQLITE_PERM: ("may not be opened", "check who owns the file and its folder"),
    sqlite3.SQLITE_AUTH: ("may not be opened", "check who owns the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "check that its folder exists and is writable, also for '-wal' and '-shm'",
    ),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and try again"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written: the disk reports an error", None),
    sqlite3.SQLITE_CORRUPT: (
        "is damaged",
        "try 'edenmem doctor --fix', restore a backup, or save what can be read with 'edenmem"
        " export --salvage FILE'",
    ),
    sqlite3.SQLITE_NOTADB: (
        "is not an edenmem database",
        "name another file with --uri or EDENMEM_URI",
    ),
    sqlite3.SQLITE_NOMEM: ("cannot be used: there is not enough memory", None),
}


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the system into `StoreError`.

    Text or numbers that no database can hold are an `InputError`. Programming errors are not
    translated.
    """
    try:
        yield
    except EdenmemError:
        raise
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeEncodeError as error:
        raise InputError(
            "text has lone surrogates, which no database can hold",
            hint="pass it through edenmem.text.clean() first",
        ) from error
    except OverflowError as error:
        raise InputError("a number does not fit into 64 bits") from error


def _translate(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None and str(error).startswith("Could not decode to UTF-8"):
        return DocumentDamaged(
            f"{path} has text that is not UTF-8",
            hint="'edenmem doctor --full' lists the unreadable rows",
        )
    if code is None:  # raised by the module: a programming error
        return error
    if code & 0xFF == sqlite3.SQLITE_TOOBIG:
        return InputError("a text or vector is larger than SQLite can hold")
    if code & 0xFF == sqlite3.SQLITE_CORRUPT:
        return StoreDamaged(str(path), _FAULTS[sqlite3.SQLITE_CORRUPT][1])
    said, hint = _FAULTS.get(code & 0xFF, (f"gave an error: {error}", None))
    kind = StoreReadOnly if code & 0xFF == sqlite3.SQLITE_READONLY else StoreError
    return kind(f"{path} {said}", hint=hint)
