"""Read v1 memory from a MongoDB that may be in use, without writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from pymongo import MongoClient
from pymongo import errors as driver

from edenmem.errors import InputError
from edenmem.models.v1 import V1_COLLECTIONS, V1Damage, V1DamageKind, V1ProblemKind
from edenmem.models.v1_documents import V1Account, V1Read
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.core.connection import DEFAULT_DATABASE
from edenmem.store.mongo.core.errors import bad_uri, location_of, translate_errors
from edenmem.store.v1 import bson_stream, documents
from edenmem.store.v1.damage import DamageTally
from edenmem.store.v1.documents import Canonical

#: Maximum number of documents in one batch of the server, and its approximate size in bytes.
_BATCH = 1000
_BATCH_BYTES = 4 * 1024 * 1024
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


class LiveSource:
    """v1 memory in a MongoDB; a `V1Source`.

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

    def __init__(
        self,
        uri: str,
        settings: StoreSettings,
        *,
        database: str = "",
        client: Any | None = None,
    ) -> None:
        self._uri = uri
        self._own = client is None
        self._client = client if client is not None else _connect(uri, settings)
        default = settings.database or DEFAULT_DATABASE
        self._database = (
            self._client[database] if database else self._client.get_default_database(default)
        )
        self._accounts = settings.users_collection
        self._damage = DamageTally()
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
                hint="name the database: --database NAME, or mongodb://host/NAME",
            )

    @property
    def location(self) -> str:
        """Return the location, without secrets."""
        return location_of(self._uri)

    def collections(self) -> frozenset[str]:
        """Return the database's relevant collections."""
        return frozenset(documents.OLDER_COLLECTIONS.get(each, each) for each in self._present)

    def fingerprint(self) -> str:
        """Return nothing: a resumed run uses what was read before."""
        return ""

    def damage(self) -> Sequence[V1Damage]:
        """Return the damage found."""
        return self._damage.damage()

    def size(self) -> int:
        """Estimate the number of documents from the server's metadata."""
        with translate_errors(self.location):
            return sum(self._database[name].estimated_document_count() for name in self._present)

    def accounts(self) -> Iterator[V1Account]:
        """Yield the host's users and agents."""
        if not self._has_accounts:
            return
        for frame in self._frames(self._accounts, dict.fromkeys(_ACCOUNT_FIELDS, 1)):
            try:
                raw, _ = bson_stream.decode(frame.raw)
            except ValueError:
                unreadable, known = V1DamageKind.UNREADABLE, bson_stream.id_in(frame.raw)
                self._damage.count(unreadable, self._accounts, self._accounts, known or "no id")
                continue
            account = documents.read(documents.ACCOUNTS[0], raw, "").document
            if isinstance(account, V1Account):
                yield account

    def documents(self, canonical: Canonical) -> Iterator[V1Read]:
        """Yield all documents, collection by collection."""
        for name in self._present:
            current = documents.OLDER_COLLECTIONS.get(name, name)
            for place, frame in enumerate(self._frames(name), start=1):
                try:
                    raw, lenient = bson_stream.decode(frame.raw)
                except ValueError as error:
                    read = V1Read(
                        collection=current,
                        id=bson_stream.id_in(frame.raw) or f"@{place}",
                        document=None,
                        notes=((V1ProblemKind.UNREADABLE, str(error)),),
                        damage=V1DamageKind.UNREADABLE,
                    )
                else:
                    current = documents.current_collection(name, raw) or current
                    read = documents.read(
                        current, raw, f"@{place}", invalid_utf8=lenient, canonical=canonical
                    )
                if read.damage is not None:
                    self._damage.count(read.damage, name, read.collection, read.id)
                yield read

    def _frames(
        self, name: str, projection: Mapping[str, int] | None = None
    ) -> Iterator[bson_stream.Frame]:
        with translate_errors(self.location):
            size = self._batch_size(name)
            cursor = self._database[name].find_raw_batches({}, projection, batch_size=size)
            for batch in cursor:
                yield from bson_stream.frames(BytesIO(batch))

    def _batch_size(self, name: str) -> int:
        """Return the number of documents per batch, by their average size."""
        try:
            average = self._database.command("collStats", name).get("avgObjSize")
        except driver.OperationFailure:  # not permitted or not supported
            average = None
        if not isinstance(average, int | float) or average <= 0:
            return _BATCH // 10
        return max(1, min(_BATCH, int(_BATCH_BYTES / average)))

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
