"""What a store does, in the words of the domain: a record of capabilities.

Two stores implement it (`edenmem.store.sqlite.SqliteStore`, `edenmem.store.mongo.MongoStore`) and
one contract suite holds both to it. All methods block; the engine's async parts call them from
threads, so a store is safe to share between threads. Scopes in arguments are exact: nothing
outside them is read or written. Every list has a defined order. Iterators stream in batches.

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
    from edenmem.store.protocol.vectors import ModelSwitches, Vectors
    from edenmem.store.protocol.walk import Walk


class Store(Protocol):
    """Memory in a database; each attribute is one thing that it does."""

    @property
    def database(self) -> Database:
        """What is about the database as a whole."""

    @property
    def host(self) -> Host:
        """What the platform owns: agents, accounts, sessions and messages."""

    @property
    def contexts(self) -> Contexts:
        """Contexts that are cached with their sessions."""

    @property
    def tokens(self) -> Tokens:
        """Who may use the server, and how much was used."""

    @property
    def memory(self) -> Memory:
        """Memory as it is now."""

    @property
    def history(self) -> History:
        """Memory as it was."""

    @property
    def changes(self) -> Changes:
        """The one way by which memory is changed."""

    @property
    def propagation(self) -> Propagation:
        """Which versions of texts are still to be passed on to other scopes."""

    @property
    def log(self) -> AuditLog:
        """The log of changes."""

    @property
    def formations(self) -> Formations:
        """Keeps formations, each moved from state to state in one atomic step."""

    @property
    def usage(self) -> Usage:
        """What models cost."""

    @property
    def cold(self) -> ColdSessions:
        """Sessions in which nothing was said for a while."""

    @property
    def search(self) -> Search:
        """Candidates for search."""

    @property
    def vectors(self) -> Vectors:
        """Vectors by the models that they are of."""

    @property
    def switches(self) -> ModelSwitches:
        """A second vector for each fact, and which of the two is in force. One switch at a time."""

    @property
    def indexes(self) -> Indexes:
        """The indexes of a store."""

    @property
    def statistics(self) -> Statistics:
        """Numbers about memory, and none of its text but that of single facts."""

    @property
    def walk(self) -> Walk:
        """Everything that is stored, document by document."""

    @property
    def erasure(self) -> Erasure:
        """Finds and removes traces."""

    @property
    def migrations(self) -> Migrations:
        """The steps of our own schema, and the ledger of runs that brought data here."""


def batched(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of up to ``size`` of the rows, in order."""
    batch: list[Any] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
