"""The connection: made on first use, shared by all threads, with its collections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient
from pymongo import errors as driver
from pymongo.write_concern import WriteConcern

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Collection, Document, Sort
from edenmem.store.mongo.core.errors import bad_uri, location_of, translate_errors
from edenmem.store.mongo.core.filters import Filter

_T = TypeVar("_T")
DEFAULT_DATABASE = "eden"

#: Queries that one reader's request asks at the same time.
_AT_ONCE = 8


class Connection:
    """What every part of the store stands on: a database with its collections, and settings.

    Args:
        uri: ``mongodb://`` or ``mongodb+srv://``.
        settings: Names of the host's collections, the database, time-outs.
        client: A ready client instead of one for ``uri``; it stays open on `close`.
    """

    def __init__(self, uri: str, settings: StoreSettings, *, client: Any | None = None) -> None:
        self.uri = uri
        self.settings = settings
        self._given_client = client
        self._client: Any | None = client
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._raw_database: Any | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    @property
    def location(self) -> str:
        """Where the store is, without secrets."""
        return location_of(self.uri)

    def close(self) -> None:
        """Let go of sockets and threads. The store connects again if it is used again."""
        with self._lock:
            client, pool = self._client, self._pool
            self._client, self._pool = self._given_client, None
            self._raw_database = None
        if pool is not None:
            pool.shutdown()
        if client is not None and client is not self._given_client:
            client.close()

    @property
    def database(self) -> Any:
        """The driver's database. It connects on first use, and again after `close`."""
        with self._lock:
            if self._raw_database is None:
                if self._client is None:
                    self._client = self._connect()
                self._raw_database = _lenient(self._client, self._database_name(self._client))
            return self._raw_database

    @property
    def client(self) -> Any:
        """The driver's client."""
        return self.database.client

    @property
    def full_name(self) -> str:
        """The database and where it is, for messages."""
        return f"{self.database.name} at {self.location}"

    def _connect(self) -> MongoClient[Document]:
        milliseconds = int(self.settings.connect_timeout_seconds * 1000)
        try:
            return MongoClient(
                self.uri,
                tz_aware=True,
                appname="edenmem",
                serverSelectionTimeoutMS=milliseconds,
                connectTimeoutMS=milliseconds,
                retryWrites=True,
            )
        except (driver.PyMongoError, ValueError, TypeError):
            raise bad_uri(self.uri) from None

    def _database_name(self, client: Any) -> str:
        if self.settings.database:
            return self.settings.database
        if client is self._given_client:
            return DEFAULT_DATABASE
        return str(client.get_default_database(DEFAULT_DATABASE).name)

    def collection(self, name: str) -> Collection:
        """A collection of the database."""
        with translate_errors(self.location):
            return Collection(self.database[name], self.location, read_only=self.settings.read_only)

    # -- the collections ---------------------------------------------------------------------

    @property
    def users(self) -> Collection:
        """Accounts of people and agents, which are the platform's."""
        return self.collection(self.settings.users_collection)

    @property
    def sessions(self) -> Collection:
        """Sessions, which are the platform's."""
        return self.collection(self.settings.sessions_collection)

    @property
    def messages(self) -> Collection:
        """Messages, which are the platform's."""
        return self.collection(self.settings.messages_collection)

    @property
    def facts(self) -> Collection:
        """Facts with their vectors."""
        return self.collection(names.FACTS)

    @property
    def reflections(self) -> Collection:
        """Reflections."""
        return self.collection(names.REFLECTIONS)

    @property
    def consolidated(self) -> Collection:
        """Texts of scopes, and their buffers."""
        return self.collection(names.CONSOLIDATED)

    @property
    def policies(self) -> Collection:
        """Policies and revisions of scopes."""
        return self.collection(names.POLICIES)

    @property
    def history(self) -> Collection:
        """Past versions of facts and texts."""
        return self.collection(names.HISTORY)

    @property
    def audit(self) -> Collection:
        """The log of changes."""
        return self.collection(names.AUDIT)

    @property
    def formations(self) -> Collection:
        """Claims, and what came of them."""
        return self.collection(names.FORMATIONS)

    @property
    def usage(self) -> Collection:
        """What work outside of formations cost."""
        return self.collection(names.USAGE)

    @property
    def cold(self) -> Collection:
        """Notes of the cold run about sessions."""
        return self.collection(names.COLD)

    @property
    def forgettings(self) -> Collection:
        """Hashes of what was forgotten."""
        return self.collection(names.FORGETTINGS)

    @property
    def tokens(self) -> Collection:
        """Access tokens."""
        return self.collection(names.TOKENS)

    @property
    def daily_use(self) -> Collection:
        """What was used in a day."""
        return self.collection(names.DAILY_USE)

    @property
    def switches(self) -> Collection:
        """The switch to another embedding model, if one is under way."""
        return self.collection(names.SWITCH)

    @property
    def ledger(self) -> Collection:
        """Schema steps, leases, runs of migrations and the guard of transactions."""
        return self.collection(names.MIGRATIONS)

    # -- several queries at once -------------------------------------------------------------

    def run_all(self, calls: Sequence[Callable[[], _T]]) -> list[_T]:
        """The calls' results in order, all under way at once: the time of one round trip.

        When one fails, those that wait for a thread are not begun: with a server that cannot be
        reached each would take the whole time-out again.
        """
        if len(calls) < 2:
            return [call() for call in calls]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="edenmem-mongo")
            pool = self._pool
        failed: list[BaseException] = []

        def run_unless_failed(call: Callable[[], _T]) -> _T:
            if failed:
                raise failed[0]
            try:
                return call()
            except BaseException as error:
                failed.append(error)
                raise

        return list(pool.map(run_unless_failed, calls))

    def find_all(
        self,
        collection: Collection,
        filters: Sequence[Filter],
        projection: Filter | None = None,
        *,
        sort: Sort = (),
        limit: int = 0,
    ) -> Iterator[Document]:
        """What each filter finds, read whole and asked at the same time."""

        def reader(filter: Filter) -> Callable[[], list[Document]]:
            return lambda: list(collection.find(filter, projection, sort=sort, limit=limit))

        for documents in self.run_all([reader(filter) for filter in filters]):
            yield from documents


def _lenient(client: Any, name: str) -> Any:
    """The database, in which a time that Python does not have is read as the driver's own type, and
    every write is answered."""
    options: CodecOptions[Any] = CodecOptions(
        tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
    )
    try:
        # Without an answer to a write nobody knows what it did: a URI cannot ask for that.
        concern = None if client.write_concern.acknowledged else WriteConcern("majority")
        return client.get_database(name, codec_options=options, write_concern=concern)
    except NotImplementedError:  # a mock of a server
        return client[name]
