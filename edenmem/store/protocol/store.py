"""A store: a record of capabilities, each a protocol.

Implemented by `edenmem.store.sqlite.SqliteStore` and `edenmem.store.mongo.MongoStore`, and verified
by one contract suite. All methods block; async code of the engine calls them from threads, so a
store is safe to share between threads. Scopes in arguments are exact: nothing outside them is read
or written. Every list has a defined order. Iterators stream in batches.

Any method may raise `StoreError` if the database cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a command loads what it uses
    from edenmem.store.protocol.database import Database, Indexes, Migrations
    from edenmem.store.protocol.erasure import Erasure
    from edenmem.store.protocol.formations import ColdSessions, Formations, Usage
    from edenmem.store.protocol.host import Contexts, Host, Tokens
    from edenmem.store.protocol.memory import AuditLog, Changes, History, Memory, Told
    from edenmem.store.protocol.search import ModelSwitches, Search, Vectors
    from edenmem.store.protocol.walk import Statistics, Walk


class Store:
    """Memory in a database; each attribute is one capability."""

    #: The database as a whole.
    database: Database
    #: The platform's data: agents, accounts, sessions and messages.
    host: Host
    #: Contexts that are cached with their sessions.
    contexts: Contexts
    #: Access tokens of the server and their daily usage.
    tokens: Tokens
    #: The current state of memory.
    memory: Memory
    #: The past states of memory.
    history: History
    #: The only way to change memory.
    changes: Changes
    #: The log of changes.
    log: AuditLog
    #: Notes of what left the engine.
    told: Told
    #: Formations, each moved between states in one atomic step.
    formations: Formations
    #: The cost of model calls.
    usage: Usage
    #: Sessions without recent messages.
    cold: ColdSessions
    #: Candidates for search.
    search: Search
    #: Vectors by embedding model.
    vectors: Vectors
    #: Switches between embedding models, one at a time.
    switches: ModelSwitches
    #: The indexes of the store.
    indexes: Indexes
    #: Counts about memory; the only texts are those of single facts.
    statistics: Statistics
    #: Everything stored, document by document.
    walk: Walk
    #: Finds and removes traces.
    erasure: Erasure
    #: The steps of the schema, and the ledger of data migrations.
    migrations: Migrations


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
