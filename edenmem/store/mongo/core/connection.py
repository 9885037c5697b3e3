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


class Connected:
    """What every part of the store stands on.

    Args:
        uri: ``mongodb://`` or ``mongodb+srv://``.
        settings: Names of the host's collections, the database, time-outs.
        client: A ready client instead of one for ``uri``; it stays open on `close`.
        scan_limit: How many facts a search without search indexes may read.
        fuzzy_expansions: How many variants of a word a search index looks for.
    """

    def __init__(
        self,
        uri: str,
        settings: StoreSettings,
        *,
        client: Any | None = None,
        scan_limit: int = 50_000,
        fuzzy_expansions: int = 15,
    ) -> None:
        self._uri = uri
        self._settings = settings
        self._given_client = client
        self._client: Any | None = client
        self._scan_limit = scan_limit
        self._fuzzy_expansions = fuzzy_expansions
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._raw_database: Any | None = None
        self._standing: set[str] = set()  # unique indexes that were seen to stand

    def __repr__(self) -> str:
        return f"{type(self).__name__}({location_of(self._uri)!r})"

    @property
    def location(self) -> str:
        """Where the store is, without secrets."""
        return location_of(self._uri)

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
    def _database(self) -> Any:
        with self._lock:
            if self._raw_database is None:
                if self._client is None:
                    self._client = self._connect()
                self._raw_database = _lenient(self._client, self._database_name(self._client))
            return self._raw_database

    def _connect(self) -> MongoClient[Document]:
        milliseconds = int(self._settings.connect_timeout_seconds * 1000)
        try:
            return MongoClient(
                self._uri,
                tz_aware=True,
                appname="edenmem",
                serverSelectionTimeoutMS=milliseconds,
                connectTimeoutMS=milliseconds,
                retryWrites=True,
            )
        except (driver.PyMongoError, ValueError, TypeError):
            raise bad_uri(self._uri) from None

    def _database_name(self, client: Any) -> str:
        if self._settings.database:
            return self._settings.database
        if client is self._given_client:
            return DEFAULT_DATABASE
        return str(client.get_default_database(DEFAULT_DATABASE).name)

    def _collection(self, name: str) -> Collection:
        with translate_errors(self.location):
            return Collection(
                self._database[name], self.location, read_only=self._settings.read_only
            )

    # -- the collections ---------------------------------------------------------------------

    @property
    def _users(self) -> Collection:
        return self._collection(self._settings.users_collection)

    @property
    def _sessions(self) -> Collection:
        return self._collection(self._settings.sessions_collection)

    @property
    def _messages(self) -> Collection:
        return self._collection(self._settings.messages_collection)

    @property
    def _facts(self) -> Collection:
        return self._collection(names.FACTS)

    @property
    def _reflections(self) -> Collection:
        return self._collection(names.REFLECTIONS)

    @property
    def _consolidated(self) -> Collection:
        return self._collection(names.CONSOLIDATED)

    @property
    def _policies(self) -> Collection:
        return self._collection(names.POLICIES)

    @property
    def _history(self) -> Collection:
        return self._collection(names.HISTORY)

    @property
    def _audit(self) -> Collection:
        return self._collection(names.AUDIT)

    @property
    def _formations(self) -> Collection:
        return self._collection(names.FORMATIONS)

    @property
    def _usage(self) -> Collection:
        return self._collection(names.USAGE)

    @property
    def _cold(self) -> Collection:
        return self._collection(names.COLD)

    @property
    def _forgettings(self) -> Collection:
        return self._collection(names.FORGETTINGS)

    # -- several queries at once -------------------------------------------------------------

    def _run_all(self, calls: Sequence[Callable[[], _T]]) -> list[_T]:
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

    def _find_all(
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

        for documents in self._run_all([reader(filter) for filter in filters]):
            yield from documents
