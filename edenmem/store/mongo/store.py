"""The MongoDB store: one connection, and the capabilities built on it."""

from __future__ import annotations

from typing import Any

from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.apply.changes import MongoChanges
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.migrations import MongoMigrations
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transactions
from edenmem.store.mongo.formations.cold import MongoColdSessions
from edenmem.store.mongo.formations.formations import MongoFormations
from edenmem.store.mongo.formations.usage import MongoUsage
from edenmem.store.mongo.host.contexts import MongoContexts
from edenmem.store.mongo.host.host import MongoHost
from edenmem.store.mongo.host.tokens import MongoTokens
from edenmem.store.mongo.indexes.database import MongoDatabase
from edenmem.store.mongo.indexes.indexes import MongoIndexes
from edenmem.store.mongo.memory.audit_log import MongoAuditLog, MongoTold
from edenmem.store.mongo.memory.history import MongoHistory
from edenmem.store.mongo.memory.memory import MongoMemory
from edenmem.store.mongo.search.search import MongoSearch, SearchChoice
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.search.switches import MongoSwitches
from edenmem.store.mongo.search.vectors import MongoVectors
from edenmem.store.mongo.walk.erasure import MongoErasure
from edenmem.store.mongo.walk.statistics import MongoStatistics
from edenmem.store.mongo.walk.walk import MongoWalk
from edenmem.store.protocol.store import Store


class MongoStore(Store):
    """Memory in MongoDB; implements `edenmem.store.protocol.store.Store`.

    Safe to share between threads. Documents keep the platform's names and types, so a live database
    can be used. Writing needs transactions, and so a replica set. Connects on first use.

    Args:
        uri: ``mongodb://`` or ``mongodb+srv://``.
        settings: The database, the names of the host's collections, timeouts.
        client: An existing client to use instead of ``uri``; `Database.close` leaves it open.
        scan_limit: Maximum number of facts to read without search indexes.
        fuzzy_expansions: Maximum number of variants per word.
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
        self.database = MongoDatabase(connection, readiness, self.migrations, slots)
        self.indexes = MongoIndexes(connection, slots)
        self.host = MongoHost(connection, transactions)
        self.contexts = MongoContexts(connection)
        self.tokens = MongoTokens(connection, transactions)
        self.memory = MongoMemory(connection)
        self.history = MongoHistory(connection, self.memory)
        self.log = MongoAuditLog(connection)
        self.told = MongoTold(connection)
        self.search = MongoSearch(connection, readiness, slots, choice)
        self.vectors = MongoVectors(connection, slots)
        self.switches = MongoSwitches(connection, slots, choice)
        self.changes = MongoChanges(connection, readiness, transactions, slots)
        self.formations = MongoFormations(connection, readiness, slots, self.changes)
        self.usage = MongoUsage(connection)
        self.cold = MongoColdSessions(connection)
        self.walk = MongoWalk(connection, readiness, transactions, slots, self.host, self.memory)
        self.statistics = MongoStatistics(connection)
        self.erasure = MongoErasure(connection, transactions)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.connection.location!r})"
