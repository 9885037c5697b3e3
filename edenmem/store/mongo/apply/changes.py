"""Apply change sets: read the state, plan with `edenmem.memory`, and write, in transactions."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from pymongo import errors as driver

from edenmem.errors import ConflictError, ScopeError, StoreError
from edenmem.memory import Effect, Needs, State, needs, plan_all
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeResult,
    ChangeSet,
    RemoveAgent,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    SetAgentToggles,
    WriteConsolidation,
)
from edenmem.models.ids import utc_now
from edenmem.models.memory import FailedDrafts
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.state import Loader
from edenmem.store.mongo.apply.writer import Writer
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY, FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.errors import TransactionTooLarge, index_in
from edenmem.store.mongo.core.filters import Filter, build_consolidated_key, id_parts, object_id
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.memory.memory import UNPROPAGATED
from edenmem.store.mongo.search.slots import Slots

#: Maximum numbers of documents and bytes written in one transaction; a change is never divided.
_DOCUMENTS = 1000
_BYTES = 8 * 1024 * 1024

#: Maximum number of attempts after a unique index refused a write.
_TRIES = 3
_DUPLICATE_KEY = 11000


class MongoChanges:
    """Implements `edenmem.store.protocol.memory.Changes`."""

    def __init__(
        self, db: Connection, readiness: Readiness, transactions: Transactions, slots: Slots
    ) -> None:
        self._db = db
        self._readiness = readiness
        self._transactions = transactions
        self._slots = slots

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        return Loader(_Outside(self._db), self._db.settings).load(needs, at)

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        self._readiness.require()
        self._readiness.require_keys(keys_for(changes.changes))
        self._slots.switch()  # cache it before the transaction
        results: list[ChangeResult] = []
        for portion in portions(changes.changes):
            results += self._apply_part(changes, portion, len(results))
        return results

    def _apply_part(
        self, context: ChangeSet, changes: Sequence[Change], start: int
    ) -> list[ChangeResult]:
        """Apply changes in one transaction, or in two halves if that is too large."""
        try:
            return [effect.result for effect in self._plan_and_write(context, changes, start)]
        except TransactionTooLarge:
            if len(changes) < 2:
                raise
        half = len(changes) // 2
        first = self._apply_part(context, changes[:half], start)
        return first + self._apply_part(context, changes[half:], start + half)

    def _plan_and_write(
        self, context: ChangeSet, changes: Sequence[Change], start: int
    ) -> list[Effect]:
        """Plan on the current state and write the effects; retry after conflicting writes."""
        wanted, scopes = needs(changes, automatic=context.automatic), _scopes_of(changes)
        # Changes concurrent with the removal of an account may belong to it.
        exclusive = any(isinstance(change, RemoveAgent | RemoveUser) for change in changes)
        accounts = any(isinstance(change, AddAgent | AddUser) for change in changes)

        def body(transaction: Transaction) -> list[Effect]:
            transaction.guard(scopes, accounts=accounts, exclusive=exclusive)
            loader = Loader(transaction, self._db.settings)
            effects = plan_all(context, loader.load(wanted, context.at), changes, start=start)
            if any(effect.entry is not None for effect in effects):
                Writer(transaction, self._db.settings, self._slots.vector_update).write(effects)
            else:
                transaction.abandon()
            return effects

        index = ""
        for _ in range(_TRIES):
            try:
                return self._transactions.run(body)
            except driver.DuplicateKeyError as error:
                index = index_in(error.details or {})
            except driver.BulkWriteError as error:
                index = index_in(self._duplicate_in(error))
        where = f" on {index}" if index else ""
        raise self._readiness.explain_refusal(index) or ConflictError(
            f"gave up after {_TRIES} conflicting writes{where}", hint="run the command again"
        )

    def _duplicate_in(self, error: driver.BulkWriteError) -> Mapping[str, Any]:
        """Return the duplicate that ended a bulk write; raise any other failure."""
        (failure,) = error.details.get("writeErrors") or [{}]
        if failure.get("code") != _DUPLICATE_KEY:
            reason = failure.get("errmsg", "")
            raise StoreError(
                f"document was refused by MongoDB at {self._db.location}: {reason}"
            ) from error
        return dict(failure)

    # -- upkeep ------------------------------------------------------------------------------

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        for part in id_parts(fact_ids):
            self._db.facts.update_many(
                {"_id": {"$in": part}},
                {"$inc": {"access_count": 1}, "$max": {"last_accessed_at": at}},
            )

    def set_failed_drafts(self, scope: Scope, failed: FailedDrafts) -> None:
        fields = {"failed_drafts": msgspec.structs.asdict(failed), "updatedAt": utc_now()}
        self._db.consolidated.update_one(build_consolidated_key(scope), {"$set": fields})

    def finish_absorbing(self, scope: Scope) -> int:
        document = self._db.consolidated.find_one(build_consolidated_key(scope))
        text = None if document is None else codec.consolidation_from(document)
        if text is None:
            return 0
        at = text.last_consolidated_at or text.updated_at or utc_now()
        marked = 0
        for part in id_parts(text.absorbed_ids):
            marked += self._db.reflections.update_many(
                {"_id": {"$in": part}, "absorbed": {"$ne": True}},
                {
                    "$set": {
                        "absorbed": True,
                        "absorbed_at": at,
                        "consolidated_into": object_id(text.id),
                        "updatedAt": utc_now(),
                    }
                },
            )
        return marked

    def settle_propagation(self, scope: Scope, version: int) -> None:
        update = {"$pull": {UNPROPAGATED: version}, "$set": {"updatedAt": utc_now()}}
        self._db.consolidated.update_one(build_consolidated_key(scope), update)


class _Outside:
    """Finds documents outside a transaction."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def find(
        self,
        collection: str,
        filter: Filter,
        projection: Mapping[str, Any] | None = None,
        *,
        limit: int = 0,
    ) -> Iterator[Document]:
        """See `edenmem.store.mongo.apply.state.Finder`."""
        return self._db.collection(collection).find(filter, projection, limit=limit)


def keys_for(changes: Iterable[Change]) -> tuple[Index, ...]:
    """Return the unique keys that the changes rely on.

    Removals rely on none, so that duplicates which prevent a key can be removed.
    """
    needed: dict[str, Index] = {}
    for change in changes:
        match change:
            case AddFact() | ReviseFact():
                needed[FACT_KEY.name] = FACT_KEY
            case (
                AddReflection()
                | RestoreReflection()
                | WriteConsolidation()
                | RevertConsolidation()
                | RepairBuffer()
            ):
                needed[CONSOLIDATED_KEY.name] = CONSOLIDATED_KEY
            case _:
                continue
    return tuple(needed.values())


def _scopes_of(changes: Sequence[Change]) -> set[Scope]:
    """Return the scopes that changes may touch."""
    found: set[Scope] = set()
    for change in changes:
        scope = getattr(change, "scope", None)
        if isinstance(scope, Scope):
            found.add(scope)
        for name in (*_ADDED, "policy"):
            with suppress(ScopeError):  # the planner refuses it
                if (added := getattr(change, name, None)) is not None:
                    found.add(added.home)
        if isinstance(change, SetAgentToggles):
            found.add(Scope.agent(change.agent_id))
    return found


def portions(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Divide a set into parts that fit into one transaction each."""
    start = documents = size = 0
    for place, change in enumerate(changes):
        number, length = _documents(change), _size(change)
        if place > start and (documents + number > _DOCUMENTS or size + length > _BYTES):
            yield changes[start:place]
            start, documents, size = place, 0, 0
        documents, size = documents + number, size + length
    if changes:
        yield changes[start:]


def _documents(change: Change) -> int:
    """Return the maximum number of documents that a change writes, without its scopes' guards."""
    flags = (getattr(change, name, ()) for name in ("absorbed_ids", "released_ids"))
    return (2 if isinstance(change, AddFact | AddReflection) else 4) + sum(map(len, flags))


def _size(change: Change) -> int:
    """Estimate the bytes that a change writes.

    Texts are stored in the document, in history and twice in the log; an array takes 14 bytes per
    number of a vector.
    """
    texts = vectors = 0
    for each in (change, *(getattr(change, name, None) for name in _ADDED)):
        texts += len(getattr(each, "content", None) or "")
        vectors += len(getattr(each, "embedding", None) or b"")
    return 2000 + 16 * texts + 4 * vectors


#: The fields of changes that hold added memory.
_ADDED = ("fact", "or_add", "reflection", "held")
