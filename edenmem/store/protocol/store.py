"""Protocol of a store: a record of capabilities.

Implemented by `edenmem.store.sqlite.SqliteStore` and `edenmem.store.mongo.MongoStore`, and verified
by one contract suite. All methods block; async code of the engine calls them from threads, so a
store is safe to share between threads. Scopes in arguments are exact: nothing outside them is read
or written. Every list has a defined order. Iterators stream in batches.

Any method may raise `StoreError` if the database cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # a command loads what it uses
    from edenmem.store.protocol.access import Tokens
    from edenmem.store.protocol.database import Database, Migrations
    from edenmem.store.protocol.erasure import Erasure
    from edenmem.store.protocol.formations import ColdSessions, Formations, Usage
    from edenmem.store.protocol.host import Contexts, Host
    from edenmem.store.protocol.indexes import Indexes
    from edenmem.store.protocol.log import AuditLog
    from edenmem.store.protocol.memory import Changes, History, Memory, Propagation
    from edenmem.store.protocol.search import Search
    from edenmem.store.protocol.statistics import Statistics
    from edenmem.store.protocol.told import Told
    from edenmem.store.protocol.vectors import ModelSwitches, Vectors
    from edenmem.store.protocol.walk import Walk


class Store(Protocol):
    """Memory in a database; each attribute is one capability."""

    @property
    def database(self) -> Database:
        """The database as a whole."""

    @property
    def host(self) -> Host:
        """The platform's data: agents, accounts, sessions and messages."""

    @property
    def contexts(self) -> Contexts:
        """Contexts that are cached with their sessions."""

    @property
    def tokens(self) -> Tokens:
        """Access tokens of the server and their daily usage."""

    @property
    def memory(self) -> Memory:
        """The current state of memory."""

    @property
    def history(self) -> History:
        """The past states of memory."""

    @property
    def changes(self) -> Changes:
        """The only way to change memory."""

    @property
    def propagation(self) -> Propagation:
        """Versions of texts that are not yet propagated to other scopes."""

    @property
    def log(self) -> AuditLog:
        """The log of changes."""

    @property
    def told(self) -> Told:
        """Notes of what left the engine."""

    @property
    def formations(self) -> Formations:
        """Formations, each moved between states in one atomic step."""

    @property
    def usage(self) -> Usage:
        """The cost of model calls."""

    @property
    def cold(self) -> ColdSessions:
        """Sessions without recent messages."""

    @property
    def search(self) -> Search:
        """Candidates for search."""

    @property
    def vectors(self) -> Vectors:
        """Vectors by embedding model."""

    @property
    def switches(self) -> ModelSwitches:
        """Switches between embedding models, one at a time."""

    @property
    def indexes(self) -> Indexes:
        """The indexes of the store."""

    @property
    def statistics(self) -> Statistics:
        """Counts about memory; the only texts are those of single facts."""

    @property
    def walk(self) -> Walk:
        """Everything stored, document by document."""

    @property
    def erasure(self) -> Erasure:
        """Finds and removes traces."""

    @property
    def migrations(self) -> Migrations:
        """The steps of the schema, and the ledger of data migrations."""


def batched(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of up to ``size`` rows, in order."""
    batch: list[Any] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
