"""The connection: opened on first use and shared by all threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock, local
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo import errors as driver
from pymongo.write_concern import WriteConcern

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import (
    CODEC_OPTIONS,
    Collection,
    Document,
    Sort,
    bad_uri,
    location_of,
    translate_errors,
)
from edenmem.store.mongo.core.filters import Filter, id_parts

_T = TypeVar("_T")
DEFAULT_DATABASE = "eden"

#: Concurrent queries of one request.
_AT_ONCE = 8
_thread = local()


class _Named:
    """A collection of the database, by its name or by the setting that names it."""

    def __init__(self, name: str | Callable[[StoreSettings], str]) -> None:
        self._name = name

    def __get__(self, connection: Connection, owner: type[Connection]) -> Collection:
        name = self._name
        return connection.collection(name if isinstance(name, str) else name(connection.settings))


class Connection:
    """A database with its collections, and the settings of the store.

    Args:
        uri: ``mongodb://`` or ``mongodb+srv://``.
        settings: The database, the names of the host's collections, timeouts.
        client: An existing client to use instead of ``uri``; `close` leaves it open.
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
        """Return the location of the store, without secrets."""
        return location_of(self.uri)

    def close(self) -> None:
        """Close sockets and threads; the next use connects again."""
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
        """Return the driver's database; connects on first use."""
        with self._lock:
            if self._raw_database is None:
                if self._client is None:
                    self._client = self._connect()
                self._raw_database = _lenient(self._client, self._database_name(self._client))
            return self._raw_database

    @property
    def client(self) -> Any:
        """Return the driver's client."""
        return self.database.client

    @property
    def full_name(self) -> str:
        """Return the database and its location, for messages."""
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
        """Return a collection of the database."""
        with translate_errors(self.location):
            return Collection(self.database[name], self.location, read_only=self.settings.read_only)

    def find(
        self,
        collection: str,
        filter: Filter,
        projection: Mapping[str, Any] | None = None,
        *,
        limit: int = 0,
    ) -> Iterator[Document]:
        """Find documents as `edenmem.store.mongo.core.transactions.Transaction` does."""
        return self.collection(collection).find(filter, projection, limit=limit)

    # -- the collections ---------------------------------------------------------------------

    #: Accounts of users and agents, owned by the platform.
    users = _Named(lambda settings: settings.users_collection)
    #: Sessions, owned by the platform.
    sessions = _Named(lambda settings: settings.sessions_collection)
    #: Messages, owned by the platform.
    messages = _Named(lambda settings: settings.messages_collection)
    #: Facts with their vectors.
    facts = _Named(names.FACTS)
    #: Reflections.
    reflections = _Named(names.REFLECTIONS)
    #: Items that wait for review.
    held = _Named(names.HELD)
    #: Texts of scopes, and their buffers.
    consolidated = _Named(names.CONSOLIDATED)
    #: Policies and revisions of scopes.
    policies = _Named(names.POLICIES)
    #: Past versions of facts and texts.
    history = _Named(names.HISTORY)
    #: The log of changes.
    audit = _Named(names.AUDIT)
    #: The seals of the log.
    seals = _Named(names.SEALS)
    #: Formations: claims and their outcomes.
    formations = _Named(names.FORMATIONS)
    #: The cost of work outside formations.
    usage = _Named(names.USAGE)
    #: The cold run's notes about sessions.
    cold = _Named(names.COLD)
    #: Hashes of forgotten content.
    forgettings = _Named(names.FORGETTINGS)
    #: Forgotten messages, which searches for source words skip.
    forgotten_messages = _Named(names.FORGOTTEN_MESSAGES)
    #: Replies, and the versions of memory that they were given.
    told = _Named(names.TOLD)
    #: The lists of items that replies share.
    told_lists = _Named(names.TOLD_LISTS)
    #: Access tokens.
    tokens = _Named(names.TOKENS)
    #: Usage by day.
    daily_use = _Named(names.DAILY_USE)
    #: The switch to another embedding model, if one is in progress.
    switches = _Named(names.SWITCH)
    #: Schema steps, leases, migration runs and the guard of transactions.
    ledger = _Named(names.MIGRATIONS)

    # -- concurrent queries -------------------------------------------------------------

    def run_all(self, calls: Sequence[Callable[[], _T]]) -> list[_T]:
        """Run the calls concurrently; return their results in order.

        Calls within such a call run in turn, since all threads could be waiting for them. After a
        failure, calls that have not started are skipped: with an unreachable server each
        would wait for the full timeout.
        """
        if len(calls) < 2 or getattr(_thread, "is_worker", False):
            return [call() for call in calls]
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    _AT_ONCE,
                    thread_name_prefix="edenmem-mongo",
                    initializer=partial(setattr, _thread, "is_worker", True),
                )
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

    def find_by_ids(
        self,
        collection: Collection,
        ids: Iterable[str],
        projection: Filter | None = None,
        **more: Any,
    ) -> Iterator[Document]:
        """Yield the documents with these IDs that also match ``more``; see `find_all`."""
        filters = [{"_id": {"$in": part}, **more} for part in id_parts(ids)]
        return self.find_all(collection, filters, projection)

    def find_all(
        self,
        collection: Collection,
        filters: Sequence[Filter],
        projection: Filter | None = None,
        *,
        sort: Sort = (),
        limit: int = 0,
    ) -> Iterator[Document]:
        """Yield what the filters match; they run concurrently and are read completely."""

        def reader(filter: Filter) -> Callable[[], list[Document]]:
            return lambda: list(collection.find(filter, projection, sort=sort, limit=limit))

        for documents in self.run_all([reader(filter) for filter in filters]):
            yield from documents


def _lenient(client: Any, name: str) -> Any:
    """Return the database with lenient times and acknowledged writes."""
    try:
        # A URI can ask for unacknowledged writes, whose outcome would be unknown.
        concern = None if client.write_concern.acknowledged else WriteConcern("majority")
        return client.get_database(name, codec_options=CODEC_OPTIONS, write_concern=concern)
    except NotImplementedError:  # a mock of a server
        return client[name]
