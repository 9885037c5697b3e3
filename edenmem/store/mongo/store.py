"""The store: a connection, and the parts that stand on it."""

from __future__ import annotations

from typing import Any

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.apply.changes import MongoChanges
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.migrations import MongoMigrations
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transactions
from edenmem.store.mongo.erase.erasure import MongoErasure
from edenmem.store.mongo.formations.cold import MongoColdSessions
from edenmem.store.mongo.formations.formations import MongoFormations
from edenmem.store.mongo.formations.usage import MongoUsage
from edenmem.store.mongo.host.contexts import MongoContexts
from edenmem.store.mongo.host.host import MongoHost
from edenmem.store.mongo.host.tokens import MongoTokens
from edenmem.store.mongo.indexes.database import MongoDatabase
from edenmem.store.mongo.indexes.indexes import MongoIndexes
from edenmem.store.mongo.memory.audit_log import MongoAuditLog
from edenmem.store.mongo.memory.history import MongoHistory
from edenmem.store.mongo.memory.memory import MongoMemory
from edenmem.store.mongo.memory.propagation import MongoPropagation
from edenmem.store.mongo.search.choice import SearchChoice
from edenmem.store.mongo.search.search import MongoSearch
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.search.switches import MongoSwitches
from edenmem.store.mongo.search.vectors import MongoVectors
from edenmem.store.mongo.walk.statistics import MongoStatistics
from edenmem.store.mongo.walk.walk import MongoWalk


class MongoStore:
    """Memory in MongoDB; implements `edenmem.store.protocol.store.Store`.

    Safe to share between threads. Documents keep the platform's names and types, so that it can
    be pointed at a live database. Writing takes transactions, and so a replica set. Nothing
    connects before it is used.

    Args:
        uri: ``mongodb://`` or ``mongodb+srv://``.
        settings: Names of the host's collections, the database, time-outs.
        client: A ready client instead of one for ``uri``; it stays open on `Database.close`.
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
        self.connection = connection = Connection(uri, settings, client=client)
        readiness = Readiness(connection)
        transactions = Transactions(connection, readiness)
        slots = Slots(connection)
        choice = SearchChoice(connection, scan_limit=scan_limit, fuzzy_expansions=fuzzy_expansions)
        self.migrations = MongoMigrations(connection, readiness)
        self.database = MongoDatabase(connection, readiness, self.migrations)
        self.indexes = MongoIndexes(connection, slots)
        self.host = MongoHost(connection, transactions)
        self.contexts = MongoContexts(connection)
        self.tokens = MongoTokens(connection)
        self.memory = MongoMemory(connection)
        self.history = MongoHistory(connection, self.memory)
        self.log = MongoAuditLog(connection)
        self.propagation = MongoPropagation(connection)
        self.search = MongoSearch(connection, readiness, slots, choice)
        self.vectors = MongoVectors(connection, slots)
        self.switches = MongoSwitches(connection, slots, choice)
        self.changes = MongoChanges(connection, readiness, transactions, slots)
        self.formations = MongoFormations(connection, readiness, slots, self.changes)
        self.usage = MongoUsage(connection)
        self.cold = MongoColdSessions(connection)
        self.walk = MongoWalk(connection, readiness, slots, self.host, self.memory)
        self.statistics = MongoStatistics(connection)
        self.erasure = MongoErasure(connection, transactions, self.formations)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection.location!r})"
