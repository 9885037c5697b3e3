"""Every error that edenmem raises on purpose, and the exit code that each one ends a command with.

The tree::

    EdenmemError                         1
    ├── UsageError                       2   the request itself is wrong
    │   ├── ConfigError                  2   a setting is unknown or has a value it may not have
    │   ├── ScopeError                   2   a scope lacks an id, or has one that it may not have
    │   ├── InputError                   2   a file or a text that was given cannot be read
    │   ├── AmbiguousReference           2   a name or prefix fits more than one thing
    │   └── AmbiguousInput               2   a folder holds several things to read
    ├── NotFoundError                    3   what was named does not exist
    ├── ConflictError                    4   somebody else changed it first, or it exists already
    │   └── FactKeyConflict              4   an index of the database refuses facts
    └── UnavailableError                 5   a database or a provider cannot be used now
        ├── DiskFull                     5   there is no room for a file
        ├── StoreError                   5   cannot connect, locked, not an edenmem file
        │   ├── StoreUnreachable         5   the server does not answer
        │   ├── DocumentDamaged          5   a stored document cannot be read
        │   ├── SearchIndexUnusable      5   a search index is missing, building or lacks a field
        │   └── StoreReadOnly            5   can be read, and not be written
        │       └── WriteRefused         2   because that was asked for: --read-only
        ├── EmbeddingModelMismatch       5   vectors of two models would be compared
        └── ProviderError                5   an LLM or an embedding endpoint failed
            ├── ProviderAuthError            401 and 403; never retried
            ├── ProviderMisconfigured        no such model or address, or options it does not take
            ├── ContextOverflow              the request is longer than the model's context
            ├── ProviderRateLimited          429, after the retries
            ├── ProviderTimeout              no answer in time
            ├── ProviderAnswerInvalid        an answer that is not what was asked for, twice
            ├── ReplayMiss                   the replay file has no answer for a request
            └── BudgetExceeded               the run's limit on tokens or money is reached

A message says what was wrong and where; ``hint`` says what to do.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Sequence
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the process returns; scripts rely on these numbers."""

    OK = 0
    SOME_FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


class EdenmemError(Exception):
    """The root: ``message`` says what was wrong, ``hint`` what to do about it."""

    exit_code = ExitCode.SOME_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def advised_message(self) -> str:
        """The message with the hint behind it, where both must go into one text."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def add_hint(self, hint: str) -> None:
        """Say one more thing that may be done."""
        self.hint = f"{self.hint}; {hint}" if self.hint else hint


class EdenmemWarning(UserWarning):
    """Something that goes on, and not as it should; commands print it on stderr."""


class UsageError(EdenmemError):
    """The request itself is wrong: an option is missing, or two exclude each other."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """A setting is unknown, or its value is not one that it may have."""


class ScopeError(UsageError):
    """A scope lacks the id that its kind needs, or has one that it may not have."""


class InputError(UsageError):
    """A file or text that was given cannot be read; ``line`` is its 1-based number if known."""

    def __init__(self, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}", hint=hint)
        self.line = line


class AmbiguousReference(UsageError):
    """A name or prefix that fits more than one thing; ``candidates`` lists them."""

    def __init__(self, kind: str, given: str, candidates: Sequence[str]) -> None:
        shown = [*candidates[:8], *(["…"] if len(candidates) > 8 else [])]
        super().__init__(
            "\n  ".join([f"{kind} {given!r} fits {len(candidates)} of them:", *shown]),
            hint="give more of the id, or the whole name",
        )
        self.candidates = tuple(candidates)


class AmbiguousInput(UsageError):
    """An input that holds several things, of which ``option`` names one; ``choices`` lists them."""

    def __init__(self, message: str, *, option: str, choices: Sequence[str]) -> None:
        shown = [*choices[:8], *(["…"] if len(choices) > 8 else [])]
        super().__init__(
            f"{message}: {', '.join(shown)}",
            hint=f"name one of them with {option}, such as {option} {shlex.quote(choices[0])}",
        )
        self.option = option
        self.choices = tuple(choices)


class NotFoundError(EdenmemError):
    """What was named does not exist."""

    exit_code = ExitCode.NOT_FOUND


class ConflictError(EdenmemError):
    """Somebody else changed it first, or it exists already."""

    exit_code = ExitCode.CONFLICT


class FactKeyConflict(ConflictError):
    """A unique index of the database would refuse facts that must be stored."""


class UnavailableError(EdenmemError):
    """A database or a provider that cannot be used now."""

    exit_code = ExitCode.UNAVAILABLE


class DiskFull(UnavailableError):
    """The disk, or the quota of the user, has no room for a file."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"cannot write {where}: the disk is full",
            hint="free some space and run the command again",
        )


def is_disk_full(error: OSError) -> bool:
    """Whether an error of the system means that the disk or the quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class StoreError(UnavailableError):
    """The database cannot be opened, reached, locked or written."""


class StoreUnreachable(StoreError):
    """The server of the database does not answer."""


class DocumentDamaged(StoreError):
    """A stored document cannot be read."""


class StoreReadOnly(StoreError):
    """The database can be read, but not be written."""


class WriteRefused(StoreReadOnly):
    """A write was asked for, and that nothing be written: ``store.read_only``."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="leave out --read-only, or take a profile without store.read_only"
        )


class SearchIndexUnusable(StoreError):
    """A search index is missing, still being built, or does not suffice for a query."""


class EmbeddingModelMismatch(UnavailableError):
    """Stored vectors and the query's vector come from different models; ``everywhere``: in all of
    the database, since the platform searches by the other."""

    def __init__(
        self, *, stored: str, current: str, hint: str | None = None, everywhere: bool = False
    ) -> None:
        super().__init__(
            f"the stored vectors are of {stored!r}, the configured embedder is {current!r}",
            hint=hint or "set embedding.model back, or run 'edenmem embed backfill'",
        )
        self.stored = stored
        self.current = current
        self.is_unexplained = hint is None
        self.everywhere = everywhere


class ProviderError(UnavailableError):
    """An LLM or embedding endpoint failed; ``retryable`` says whether a later try may work.

    ``usage`` holds a `edenmem.models.formation.CallUsage` for each call that was paid for it.
    """

    retryable = False
    usage: tuple[Any, ...] = ()


class ProviderAuthError(ProviderError):
    """The endpoint refused the key (401 or 403)."""


class ProviderMisconfigured(ProviderError):
    """What a setting names cannot answer anybody: the endpoint does not know the model or the
    address, or takes no request of this form, or a local model's files are not what they should be.
    """


class ContextOverflow(ProviderError):
    """The request is longer than the model's context; a part of it may fit."""


class ProviderRateLimited(ProviderError):
    """The endpoint said 429 to every try."""

    retryable = True


class ProviderTimeout(ProviderError):
    """The endpoint could not be reached, broke off, or did not answer in time."""

    retryable = True


class ProviderAnswerInvalid(ProviderError):
    """The endpoint answered twice with something that is not what was asked for."""

    retryable = True


class ReplayMiss(ProviderError):
    """The replay file has no answer for a request."""


class BudgetExceeded(ProviderError):
    """The run's limit on tokens or money is reached."""
