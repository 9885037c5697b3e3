"""One place where the driver's errors become ours. No message here can carry a password."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bson.errors import BSONError
from pymongo import errors as driver

from edenmem.errors import InputError, StoreError, StoreUnreachable

#: UserNotFound and AuthenticationFailed: these mean the user and the password, and nothing else.
_BAD_CREDENTIALS = frozenset({11, 18})
#: Unauthorized: the user lacks a privilege.
FORBIDDEN = 13
#: Codes by which a server says that it has no search commands: CommandNotFound (versions 4 to 7),
#: CommandNotSupported (7, Enterprise), SearchNotEnabled (8), an unrecognized stage (4 to 6), and
#: $listSearchIndexes outside Atlas (7). Every other code is an error of a server that has them.
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
    """A transaction writes more than the server takes in one."""


def location_of(uri: str) -> str:
    """``uri`` without user, password and options: what may be shown.

    Everything up to the last ``@`` goes, so that a password with unescaped marks goes too.
    """
    scheme, separator, rest = uri.partition("://")
    hosts = rest.rpartition("@")[2].partition("?")[0].rstrip("/")
    return f"{scheme}://{hosts}" if separator else "mongodb"


def bad_uri(uri: str) -> StoreError:
    """The URI cannot be read. The driver's own words quote parts of it, so they are left out."""
    return StoreError(
        f"the MongoDB URI of {location_of(uri)} cannot be used",
        hint="write mongodb://user:password@host:port/database; marks such as @ : / % in the user "
        "name or password must be percent-encoded",
    )


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Raise `StoreError` for whatever the driver raises, but for what the caller handles itself:
    duplicate keys and the results of bulk writes. A value that no document can hold is the
    input's fault."""
    try:
        yield
    except (driver.DuplicateKeyError, driver.BulkWriteError):
        raise
    except (driver.PyMongoError, driver.DocumentTooLarge) as error:
        raise _translate(error, location) from error
    except (BSONError, UnicodeEncodeError, OverflowError) as error:
        raise InputError(
            f"MongoDB cannot keep a value of what is to be written or looked for: {error}",
            hint="take out lone surrogates and numbers beyond 64 bits",
        ) from error


def _translate(error: Exception, location: str) -> StoreError:
    match error:
        case driver.ServerSelectionTimeoutError():
            return StoreUnreachable(
                f"cannot reach MongoDB at {location}",
                hint="check that the server runs and that host, port and TLS options are right "
                "(on Atlas: that this address is on the access list)",
            )
        case driver.NotPrimaryError():
            return _not_primary(location)
        case driver.NetworkTimeout() if _is_conflict(error.__cause__):
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
                f"the connection to MongoDB at {location} is not set up rightly",
                hint="check the options of the URI and, for mongodb+srv, the DNS name",
            )
        case driver.ConnectionFailure():
            return StoreError(
                f"the connection to MongoDB at {location} broke off", hint="try again"
            )
        case driver.DocumentTooLarge():
            return StoreError(
                "a document is larger than MongoDB's limit of 16 MB",
                hint="write fewer or shorter items at once",
            )
        case driver.OperationFailure(code=code) if code in _NOT_PRIMARY:
            return _not_primary(location)
        case driver.OperationFailure(code=code) if code in _TOO_LARGE:
            return TransactionTooLarge(
                f"MongoDB at {location} cannot take so much in one transaction: {reason_of(error)}",
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
    """Raise what ends a transaction as such, where a bulk write gives it as one document's failure
    or without the label by which the driver runs the transaction again."""
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


def _is_conflict(error: BaseException | None) -> bool:
    return isinstance(error, driver.OperationFailure) and error.code == _WRITE_CONFLICT


def reason_of(error: driver.OperationFailure) -> str:
    """The server's own words, with the code and its name.

    The command that a server quotes in some errors is left out: it may hold what is stored.
    """
    details = error.details or {}
    reason = str(details.get("errmsg") or error).partition(" to execute command {")[0]
    name = details.get("codeName")
    return f"{reason} ({name}, code {error.code})" if name else f"{reason} (code {error.code})"


def _hint_for(error: driver.OperationFailure) -> str | None:
    """What to do, where the code has one meaning."""
    if error.code in _BAD_CREDENTIALS:
        return "check user, password and authSource"
    if error.code == FORBIDDEN:
        return "give the user a role that allows this"
    if error.code == _CANNOT_CREATE_INDEX and "shard key" in str(error):
        return "a unique index of a sharded collection must begin with its shard key"
    return None


def index_in(details: Mapping[str, Any]) -> str:
    """The name of the index in a duplicate key error; "" if the server does not name it."""
    found = _INDEX_IN.search(str(details.get("errmsg") or ""))
    return found[1] if found else ""


def _not_primary(location: str) -> StoreError:
    return StoreError(
        f"MongoDB at {location} has no primary that takes writes now",
        hint="try again when the replica set has chosen one",
    )
