"""Read v1 memory from a MongoDB that may be in use, without writing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import Any

from pymongo import MongoClient
from pymongo import errors as driver

from edenmem.errors import InputError
from edenmem.models.v1 import V1_COLLECTIONS
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.core.collection import bad_uri, location_of, translate_errors
from edenmem.store.mongo.core.connection import DEFAULT_DATABASE
from edenmem.store.v1 import documents, streams
from edenmem.store.v1.files import decode
from edenmem.store.v1.source import Found, V1Source

#: Maximum number of documents in one batch of the server, which has at most 16 MB.
_BATCH = 1000
_ACCOUNT_FIELDS = (
    "type",
    "username",
    "name",
    "eden_user_id",
    "owner",
    "deleted",
    "persona",
    "user_memory_enabled",
)


class LiveSource(V1Source):
    """v1 memory in a MongoDB.

    Sends only commands that list, count and read. Documents are decoded here, so that one with
    damaged text does not end the run.

    Args:
        uri: ``mongodb://`` or ``mongodb+srv://``.
        settings: The host's collection of accounts, and the default database.
        database: Overrides the database of the URI.
        client: An existing client to use instead of ``uri``; it stays open.

    Raises:
        InputError: the database has none of v1's collections.
        StoreError: the database cannot be reached.
    """

    is_live = True

    def __init__(
        self,
        uri: str,
        settings: StoreSettings,
        *,
        database: str = "",
        client: Any | None = None,
    ) -> None:
        super().__init__()
        self.location = location_of(uri)
        self._own = client is None
        self._client = client if client is not None else _connect(uri, settings)
        default = settings.database or DEFAULT_DATABASE
        self._database = (
            self._client[database] if database else self._client.get_default_database(default)
        )
        self._accounts = settings.users_collection
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        with translate_errors(self.location):
            present = set(self._database.list_collection_names())
        names = (*V1_COLLECTIONS, *documents.OLDER_COLLECTIONS)
        self._present = [name for name in names if name in present]
        self._has_accounts = self._accounts in present
        if not self._present:
            raise InputError(
                f"no v1 memory in database {self._database.name!r} of {self.location}: "
                f"none of {', '.join(V1_COLLECTIONS)}",
                hint="name the database: --from mongodb://host/NAME",
            )

    def fingerprint(self) -> str:
        """Return a hash of all documents in their order."""
        found = blake2b(digest_size=16)
        names: list[tuple[str, Sequence[str] | None]] = [(name, None) for name in self._present]
        if self._has_accounts:
            names.append((self._accounts, _ACCOUNT_FIELDS))
        for name, fields in names:
            found.update(name.encode())
            for batch in self._batches(name, fields):
                found.update(batch)
        return found.hexdigest()

    def collections(self) -> dict[str, str]:
        """Map the database's relevant collections to their own names."""
        return {documents.OLDER_COLLECTIONS.get(each, each): each for each in self._present}

    def size(self) -> int:
        """Estimate the number of documents from the server's metadata."""
        with translate_errors(self.location):
            return sum(self._database[name].estimated_document_count() for name in self._present)

    def _contents(self, *, accounts: bool) -> Iterator[tuple[str, str | None, Iterator[Found]]]:
        if not accounts:
            yield from ((name, name, self._documents(name)) for name in self._present)
        elif self._has_accounts:
            found = self._documents(self._accounts, _ACCOUNT_FIELDS)
            yield self._accounts, documents.ACCOUNTS[0], found

    def _documents(self, name: str, fields: Sequence[str] | None = None) -> Iterator[Found]:
        place = 0
        for batch in self._batches(name, fields):
            for _, raw in streams.frames(BytesIO(batch)):
                place += 1
                yield decode(f"@{place}", raw)

    def _batches(self, name: str, fields: Sequence[str] | None) -> Iterator[bytes]:
        projection = None if fields is None else dict.fromkeys(fields, 1)
        with translate_errors(self.location):
            yield from self._database[name].find_raw_batches({}, projection, batch_size=_BATCH)

    def close(self) -> None:
        """Close the connection."""
        if self._own:
            self._client.close()


def _connect(uri: str, settings: StoreSettings) -> Any:
    milliseconds = int(settings.connect_timeout_seconds * 1000)
    try:
        return MongoClient(
            uri,
            appname="edenmem",
            serverSelectionTimeoutMS=milliseconds,
            connectTimeoutMS=milliseconds,
            retryWrites=False,
        )
    except (driver.PyMongoError, ValueError, TypeError):
        raise bad_uri(uri) from None
