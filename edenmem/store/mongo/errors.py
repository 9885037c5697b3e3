"""One place where the driver's errors become ours. No message here can carry a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo import errors as driver

from edenmem.errors import InputError, StoreError

#: Codes by which a server refuses a user, or what the user wants to do.
FORBIDDEN = frozenset({11, 13, 18, 8000})
_NOT_PRIMARY = frozenset({189, 10107, 11600, 11602, 13435, 13436})


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
def mapped(location: str) -> Iterator[None]:
    """Raise `StoreError` for whatever the driver raises, but for what the caller handles itself:
    duplicate keys and the results of bulk writes. A value that no document can hold is the
    input's fault."""
    try:
        yield
    except (driver.DuplicateKeyError, driver.BulkWriteError):
        raise
    except (driver.PyMongoError, driver.DocumentTooLarge) as error:
        raise _translated(error, location) from error
    except (BSONError, UnicodeEncodeError, OverflowError) as error:
        raise InputError(
            f"MongoDB cannot keep a value of what is to be written or looked for: {error}",
            hint="take out lone surrogates and numbers beyond 64 bits",
        ) from error


def _translated(error: Exception, location: str) -> StoreError:
    match error:
        case driver.ServerSelectionTimeoutError():
            return StoreError(
                f"cannot reach MongoDB at {location}",
                hint="check that the server runs and that host, port and TLS options are right "
                "(on Atlas: that this address is on the access list)",
            )
        case driver.NotPrimaryError():
            return _not_primary(location)
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
        case driver.OperationFailure(code=code) if code in FORBIDDEN:
            return StoreError(
                f"MongoDB at {location} refused the user or what the user wanted to do",
                hint="check user, password, authSource and the user's roles",
            )
        case driver.OperationFailure(code=code) if code in _NOT_PRIMARY:
            return _not_primary(location)
        case driver.OperationFailure():
            name = (error.details or {}).get("codeName") or f"code {error.code}"
            reason = (error.details or {}).get("errmsg") or str(error)
            return StoreError(f"MongoDB at {location} refused: {reason} ({name})")
        case _:
            return StoreError(f"MongoDB at {location} failed: {type(error).__name__}")


def _not_primary(location: str) -> StoreError:
    return StoreError(
        f"MongoDB at {location} has no primary that takes writes now",
        hint="try again when the replica set has chosen one",
    )
