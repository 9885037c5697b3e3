"""Translate the driver's errors; no message contains a password."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bson.errors import BSONError
from pymongo import errors as driver

from edenmem.errors import InputError, StoreError, StoreUnreachable

#: UserNotFound and AuthenticationFailed: wrong user or password.
_BAD_CREDENTIALS = frozenset({11, 18})
#: Unauthorized: the user lacks a privilege.
FORBIDDEN = 13
#: Codes of servers without search commands: CommandNotFound (4 to 7), CommandNotSupported (7,
#: Enterprise), SearchNotEnabled (8), an unrecognized stage (4 to 6), and $listSearchIndexes outside
#: Atlas (7).
NO_SEARCH_COMMANDS = frozenset({59, 115, 31082, 40324, 6047401})
#: IndexOptionsConflict and IndexKeySpecsConflict: another index has the name, or the fields.
INDEX_CONFLICTS = frozenset({85, 86})
INDEX_NOT_FOUND = 27
_CANNOT_CREATE_INDEX = 67
_INDEX_IN = re.compile(r" index: (\S+) dup key")
#: TransactionTooOld, TransactionTooLarge, TransactionTooLargeForCache.
_TOO_LARGE = frozenset({225, 257, 388})
_WRITE_CONFLICT = 112
_NOT_PRIMARY = frozenset({189, 10107, 11600, 11602, 13435, 13436})


class TransactionTooLarge(StoreError):
    """A transaction exceeds the server's limit."""


def location_of(uri: str) -> str:
    """Return ``uri`` without user, password and options, for display.

    Everything up to the last ``@`` is removed, so that an unescaped password is removed too.
    """
    scheme, separator, rest = uri.partition("://")
    hosts = rest.rpartition("@")[2].partition("?")[0].rstrip("/")
    return f"{scheme}://{hosts}" if separator else "mongodb"


def bad_uri(uri: str) -> StoreError:
    """Return the error for an invalid URI, without the driver's message, which quotes parts."""
    return StoreError(
        f"invalid MongoDB URI: {location_of(uri)}",
        hint="use mongodb://user:password@host:port/database; characters such as @ : / % in the "
        "user name or password must be percent-encoded",
    )


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Raise `StoreError` for errors of the driver, except duplicate keys and bulk writes.

    The caller handles those. A value that no document can hold is an `InputError`.
    """
    try:
        yield
    except (driver.DuplicateKeyError, driver.BulkWriteError):
        raise
    except (driver.PyMongoError, driver.DocumentTooLarge) as error:
        raise _translate(error, location) from error
    except (BSONError, UnicodeEncodeError, OverflowError) as error:
        raise InputError(
            f"MongoDB cannot store a value: {error}",
            hint="remove lone surrogates and numbers beyond 64 bits",
        ) from error


def _translate(error: Exception, location: str) -> StoreError:
    match error:
        case driver.ServerSelectionTimeoutError():
            return StoreUnreachable(
                f"cannot reach MongoDB at {location}",
                hint="check that the server is running, and check host, port and TLS options "
                "(on Atlas: that this address is on the access list)",
            )
        case driver.NotPrimaryError():
            return _not_primary(location)
        case driver.NetworkTimeout(__cause__=driver.OperationFailure(code=code)) if (
            code == _WRITE_CONFLICT
        ):
            return StoreError(
                f"gave up on a transaction at {location}: other clients keep changing the same "
                "documents",
                hint="try again later",
            )
        case driver.ExecutionTimeout() | driver.NetworkTimeout() | driver.WTimeoutError():
            return StoreError(
                f"MongoDB at {location} did not answer in time", hint="try again later"
            )
        case driver.ConfigurationError() | driver.InvalidURI():
            return StoreError(
                f"invalid connection options for MongoDB at {location}",
                hint="check the options of the URI and, for mongodb+srv, the DNS name",
            )
        case driver.ConnectionFailure():
            return StoreError(f"lost the connection to MongoDB at {location}", hint="try again")
        case driver.DocumentTooLarge():
            return StoreError(
                "document exceeds MongoDB's limit of 16 MB",
                hint="write fewer or shorter items at once",
            )
        case driver.OperationFailure(code=code) if code in _NOT_PRIMARY:
            return _not_primary(location)
        case driver.OperationFailure(code=code) if code in _TOO_LARGE:
            return TransactionTooLarge(
                f"transaction is too large for MongoDB at {location}: {reason_of(error)}",
                hint="write fewer or shorter items at once",
            )
        case driver.OperationFailure():
            return StoreError(
                f"MongoDB at {location} refused: {reason_of(error)}", hint=_hint_for(error)
            )
        case _:
            return StoreError(f"MongoDB at {location} failed: {type(error).__name__}")


@contextmanager
def raise_whole() -> Iterator[None]:
    """Raise a bulk write's conflict or size error as the transaction's, with its retry label.

    Bulk writes report these as failures of one document, or without the label on which the driver
    retries the transaction.
    """
    try:
        yield
    except driver.OperationFailure as error:
        failures = (error.details or {}).get("writeErrors") or [error.details or {}]
        code = failures[0].get("code", error.code)
        if code != _WRITE_CONFLICT and code not in _TOO_LARGE:
            raise
        labels = ["TransientTransactionError"] if code == _WRITE_CONFLICT else []
        details = {**failures[0], "errorLabels": labels}
        reason = str(details.get("errmsg") or error)
        raise driver.OperationFailure(reason, code, details) from error


def reason_of(error: driver.OperationFailure) -> str:
    """Return the server's message, with the code and its name.

    The command that some errors quote is removed: it may contain stored data.
    """
    details = error.details or {}
    reason = str(details.get("errmsg") or error).partition(" to execute command {")[0]
    name = details.get("codeName")
    return f"{reason} ({name}, code {error.code})" if name else f"{reason} (code {error.code})"


def _hint_for(error: driver.OperationFailure) -> str | None:
    """Return a hint for a code with a single meaning."""
    if error.code in _BAD_CREDENTIALS:
        return "check user, password and authSource"
    if error.code == FORBIDDEN:
        return "give the user a role that allows this"
    if error.code == _CANNOT_CREATE_INDEX and "shard key" in str(error):
        return "a unique index of a sharded collection must begin with its shard key"
    return None


def index_in(details: Mapping[str, Any]) -> str:
    """Return the name of the index in a duplicate key error; "" if the server does not name it."""
    found = _INDEX_IN.search(str(details.get("errmsg") or ""))
    return found[1] if found else ""


def _not_primary(location: str) -> StoreError:
    return StoreError(
        f"MongoDB at {location} has no writable primary",
        hint="try again when the replica set has elected a primary",
    )
