"""The errors of edenmem, and the exit code of each one.

The tree::

    EdenmemError                         1
    ├── UsageError                       2   the request is invalid
    │   ├── ConfigError                  2   unknown setting or invalid value
    │   ├── ScopeError                   2   a scope lacks a required ID or has an extra one
    │   ├── InputError                   2   unreadable file or text
    │   │   └── InvalidLines             2   invalid lines of a file
    │   └── AmbiguousReference           2   a name or prefix has several matches
    ├── NotFoundError                    3   the object or input file does not exist
    ├── ConflictError                    4   changed by another writer, or already exists
    │   ├── FactKeyConflict              4   a unique index of the database rejects facts
    │   └── KeyTaken                     4   another fact of the scope has the key
    └── UnavailableError                 5   a database or provider is unavailable
        ├── DiskFull                     5   the disk or quota is full
        ├── StoreError                   5   cannot connect, locked, not an edenmem file
        │   ├── StoreUnreachable         5   the server does not answer
        │   ├── DocumentDamaged          5   unreadable document
        │   ├── StoreDamaged             5   the file is damaged
        │   ├── SearchIndexUnusable      5   a search index is missing, building or lacks a field
        │   └── StoreReadOnly            5   the database is readable but not writable
        │       └── WriteRefused         2   writes are disabled: --read-only
        ├── EmbeddingModelMismatch       5   stored vectors and embedder use different models
        └── ProviderError                5   an LLM or embedding endpoint failed
            ├── ProviderAuthError            401 and 403; never retried
            ├── ProviderMisconfigured        unknown model or address, or unsupported options
            ├── ContextOverflow              the request exceeds the model's context
            ├── ProviderRateLimited          429, after the retries
            ├── ProviderTimeout              no answer in time
            ├── ProviderAnswerInvalid        two invalid answers in a row
            ├── ReplayMiss                   the replay file has no answer for a request
            └── BudgetExceeded               the token or cost limit of the run is reached

The message describes the error; ``hint`` names a command or option.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes of the process; scripts rely on these numbers."""

    OK = 0
    SOME_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


class EdenmemError(Exception):
    """Base class of all errors: ``message`` describes the error, ``hint`` the remedy."""

    exit_code = ExitCode.SOME_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def advised_message(self) -> str:
        """Return the message, followed by the hint in parentheses."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def add_hint(self, hint: str) -> None:
        """Append a hint to the existing ones."""
        self.hint = f"{self.hint}; {hint}" if self.hint else hint


class EdenmemWarning(UserWarning):
    """A problem that does not stop the work; commands print it on stderr."""


class UsageError(EdenmemError):
    """The request is invalid: an option is missing, or two exclude each other."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """A setting is unknown, or its value is invalid."""


class ScopeError(UsageError):
    """A scope lacks the ID that its kind requires, or has an ID that its kind excludes."""


def line_location(number: int, file: str = "", unit: str = "line") -> str:
    """Return the location of a line in messages: ``FILE:3``, or ``line 3`` without a file.

    ``unit`` is "entry" for the numbered entries of a document.
    """
    if not file:
        return f"{unit} {number}"
    return f"{file}:{number}" if unit == "line" else f"{file}: {unit} {number}"


class InputError(UsageError):
    """A file or text cannot be read; ``line`` is the 1-based line number, if known."""

    def __init__(
        self, message: str, *, line: int | None = None, file: str = "", hint: str | None = None
    ) -> None:
        self.line = line
        self._reason = message
        super().__init__(self._describe(file), hint=hint)

    def _describe(self, file: str) -> str:
        location = "" if self.line is None else f"{line_location(self.line, file)}: "
        return f"{location}{self._reason}"

    def name_file(self, file: str) -> None:
        """Add the name of the file to the location of the error."""
        self.message = self._describe(file)
        self.args = (self.message,)


class InvalidLines(InputError):
    """Lines of a file are invalid: the first ones with their reasons, and the number of all."""

    def __init__(
        self,
        problems: Sequence[tuple[int, str]],
        count: int,
        *,
        unit: str = "line",
        hint: str | None = None,
    ) -> None:
        self._problems = tuple(problems[:8])
        self._count = count
        self._unit = unit
        super().__init__("", line=problems[0][0], hint=hint)

    def _describe(self, file: str) -> str:
        shown = [
            f"{line_location(number, file, self._unit)}: {reason}"
            for number, reason in self._problems
        ]
        if self._count == 1:
            return shown[0]
        units = {"line": "lines", "entry": "entries"}[self._unit]
        more = [f"and {self._count - len(shown):,} more"] if self._count > len(shown) else []
        return "\n  ".join([f"{self._count:,} invalid {units}:", *shown, *more])


def _shorten(items: Sequence[str]) -> list[str]:
    return [*items[:8], *(["…"] if len(items) > 8 else [])]


#: Kinds of objects with names; others have IDs alone.
_WITH_NAMES = frozenset({"agent", "user", "account", "session", "group", "shard"})


class AmbiguousReference(UsageError):
    """A name or prefix has several matches; ``candidates`` lists them."""

    def __init__(self, kind: str, given: str, candidates: Sequence[str]) -> None:
        title = f"ambiguous {kind} {given!r}, {len(candidates)} matches:"
        hint = "use a longer ID prefix"
        if kind in _WITH_NAMES:
            hint += " or the full name"
        if kind == "reference":
            hint += ", or name the kind: user:NAME, agent:NAME, session:NAME"
        super().__init__("\n  ".join([title, *_shorten(candidates)]), hint=hint)
        self.candidates = tuple(candidates)


class NotFoundError(EdenmemError):
    """The requested object does not exist."""

    exit_code = ExitCode.NOT_FOUND


def unreadable(path: object, error: OSError) -> EdenmemError:
    """Return the error for an input file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError(
            f"no such file: {path}",
            hint="check the path; relative paths start at the current folder",
        )
    return InputError(
        f"cannot read {path}: {error.strerror}", hint="check the path and its permissions"
    )


class ConflictError(EdenmemError):
    """Another writer changed the object first, or the object already exists."""

    exit_code = ExitCode.CONFLICT


class FactKeyConflict(ConflictError):
    """A unique index of the database would reject facts."""


class KeyTaken(ConflictError):
    """Another fact of the scope has the key."""


class UnavailableError(EdenmemError):
    """A database or provider is unavailable."""

    exit_code = ExitCode.UNAVAILABLE


class DiskFull(UnavailableError):
    """The disk or the user's quota is full."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"cannot write {where}: the disk is full",
            hint="free some space and run the command again",
        )


def is_disk_full(error: OSError) -> bool:
    """Check whether a system error means that the disk or quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class StoreError(UnavailableError):
    """The database cannot be opened, reached, locked or written."""


class StoreUnreachable(StoreError):
    """The database server does not answer."""


class StoreDamaged(StoreError):
    """The database file is damaged."""

    def __init__(self, location: str, hint: str | None) -> None:
        super().__init__(f"{location} is damaged", hint=hint)
        self.location = location


class DocumentDamaged(StoreError):
    """A stored document cannot be read."""


class StoreReadOnly(StoreError):
    """The database is readable but not writable."""


class WriteRefused(StoreReadOnly):
    """Writes are disabled by ``store.read_only``."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="omit --read-only, or use a profile without store.read_only")


class SearchIndexUnusable(StoreError):
    """A search index is missing, still building, or lacks a field of the query."""


class EmbeddingModelMismatch(UnavailableError):
    """Stored vectors and the configured embedder use different models.

    With ``everywhere`` this holds for the whole database: the platform searches with the stored
    model.
    """

    def __init__(
        self, *, stored: str, current: str, hint: str | None = None, everywhere: bool = False
    ) -> None:
        super().__init__(
            f"stored vectors use {stored!r}, the configured embedder is {current!r}",
            hint=hint or "restore embedding.model, or run 'edenmem embed backfill'",
        )
        self.stored = stored
        self.current = current
        self.is_unexplained = hint is None
        self.everywhere = everywhere


class ProviderError(UnavailableError):
    """An LLM or embedding endpoint failed; ``retryable`` if a later attempt may succeed.

    ``usage`` holds a `edenmem.models.formation.CallUsage` for each billed call. ``summary`` is the
    message without the endpoint's own words, which may quote a conversation; "" if there is none.
    """

    retryable = False
    usage: tuple[Any, ...] = ()
    summary = ""


class ProviderAuthError(ProviderError):
    """The endpoint rejected the key (401 or 403)."""


class ProviderMisconfigured(ProviderError):
    """A setting is wrong: unknown model or address, unsupported request, invalid model files."""


class ContextOverflow(ProviderError):
    """The request exceeds the model's context; a part of the request may fit."""


class ProviderRateLimited(ProviderError):
    """The endpoint answered every attempt with 429."""

    retryable = True


class ProviderTimeout(ProviderError):
    """The endpoint was unreachable, closed the connection, or did not answer in time."""

    retryable = True


class ProviderAnswerInvalid(ProviderError):
    """The endpoint gave two invalid answers in a row."""

    retryable = True


class ReplayMiss(ProviderError):
    """The replay file has no answer for a request."""


class BudgetExceeded(ProviderError):
    """The token or cost limit of the run is reached."""
