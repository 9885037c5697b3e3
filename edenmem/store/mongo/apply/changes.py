"""Applying a set of changes: read, judged by the rules of `edenmem.memory`, and written, in
transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

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
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.state import Loader
from edenmem.store.mongo.apply.writer import Stale, Writer
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY, FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.errors import TransactionTooLarge, index_in
from edenmem.store.mongo.core.filters import Filter, build_consolidated_key, id_parts, object_id
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.search.slots import Slots

#: Documents, and bytes of them, that one transaction may write; a change is never divided.
_DOCUMENTS = 1000
_BYTES = 8 * 1024 * 1024

#: How often a batch is planned again because a unique index refused it.
_TRIES = 3
_DUPLICATE_KEY = 11000


class MongoChanges:
    """Implements `edenmem.store.protocol.memory.Changes`: `apply`, and upkeep that is no change."""

    def __init__(
        self, db: Connection, readiness: Readiness, transactions: Transactions, slots: Slots
    ) -> None:
        self._db = db
        self._readiness = readiness
        self._transactions = transactions
        self._slots = slots

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        """See `Changes.load_state`."""
        return Loader(_Outside(self._db), self._db.settings).load(needs, at)

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        """See `Changes.apply`."""
        self._readiness.demand()
        self._readiness.require_keys(keys_for(changes.changes))
        self._slots.switch()  # read before a transaction rather than in it
        results: list[ChangeResult] = []
        for portion in portions(changes.changes):
            results += self._apply_part(changes, portion)
        return results

    def _apply_part(self, context: ChangeSet, changes: Sequence[Change]) -> list[ChangeResult]:
        """Apply some changes of a set in one transaction, or in several if that is too large."""
        try:
            return [effect.result for effect in self._plan_and_write(context, changes)]
        except TransactionTooLarge:
            if len(changes) < 2:
                raise
        half = len(changes) // 2
        first = self._apply_part(context, changes[:half])
        return first + self._apply_part(context, changes[half:])

    def _plan_and_write(self, context: ChangeSet, changes: Sequence[Change]) -> list[Effect]:
        """Plan on what is there now, and write that. Where a unique index refuses a document,
        whoever was quicker is seen by the next try."""
        wanted, scopes = needs(changes, automatic=context.automatic), _scopes_of(changes)
        # What is applied beside the removal of an account may belong to it.
        exclusive = any(isinstance(change, RemoveAgent | RemoveUser) for change in changes)
        accounts = any(isinstance(change, AddAgent | AddUser) for change in changes)

        def body(transaction: Transaction) -> list[Effect]:
            transaction.guard(scopes, accounts=accounts, exclusive=exclusive)
            loader = Loader(transaction, self._db.settings)
            effects = plan_all(context, loader.load(wanted, context.at), changes)
            if any(effect.entry is not None for effect in effects):
                writer = Writer(
                    transaction, loader.stored, self._db.settings, self._slots.vector_update
                )
                writer.write(effects)
            else:
                transaction.abandon()
            return effects

        place = index = ""
        for _ in range(_TRIES):
            try:
                return self._transactions.run(body)
            except Stale as stale:
                place, index = f" to {stale}", ""
                continue
            except driver.DuplicateKeyError as error:
                index = index_in(error.details or {})
            except driver.BulkWriteError as error:
                index = index_in(self._duplicate_in(error))
            place = f" on {index}" if index else ""
        raise self._readiness.explain_refusal(index) or ConflictError(
            f"gave up after {_TRIES} conflicting writes{place}", hint="run the command again"
        )

    def _duplicate_in(self, error: driver.BulkWriteError) -> Mapping[str, Any]:
        """The refusal by a unique index that ended a bulk write; any other is raised."""
        (failure,) = error.details.get("writeErrors") or [{}]
        if failure.get("code") != _DUPLICATE_KEY:
            reason = f"refused a document: {failure.get('errmsg', '')}"
            raise StoreError(f"MongoDB at {self._db.location} {reason}") from error
        return dict(failure)

    # -- upkeep ------------------------------------------------------------------------------

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        """See `Changes.track_access`."""
        for part in id_parts(fact_ids):
            self._db.facts.update_many(
                {"_id": {"$in": part}},
                {"$inc": {"access_count": 1}, "$max": {"last_accessed_at": at}},
            )

    def finish_absorbing(self, scope: Scope) -> int:
        """See `Changes.finish_absorbing`."""
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


class _Outside:
    """Finds documents outside of a transaction."""

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
    """The unique keys that the changes rely on. What is only removed relies on none, so that
    duplicates which keep a key from being made can be removed."""
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
    """The scopes that changes may touch."""
    found: set[Scope] = set()
    for change in changes:
        scope = getattr(change, "scope", None)
        if isinstance(scope, Scope):
            found.add(scope)
        for name in (*_ADDED, "policy"):
            with suppress(ScopeError):  # what belongs to nobody is refused
                if (added := getattr(change, name, None)) is not None:
                    found.add(added.home)
        if isinstance(change, SetAgentToggles):
            found.add(Scope.agent(change.agent_id))
    return found


def portions(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Cut a set into parts that one transaction each can write."""
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
    """At most how many documents a change writes, beside those that guard its scopes."""
    flags = (getattr(change, name, ()) for name in ("absorbed_ids", "released_ids"))
    return (2 if isinstance(change, AddFact | AddReflection) else 4) + sum(map(len, flags))


def _size(change: Change) -> int:
    """About how many bytes a change writes: texts stand in a document, in history and, before and
    after, in the log; an array takes 14 bytes for each number of a vector."""
    texts = vectors = 0
    for each in (change, *(getattr(change, name, None) for name in _ADDED)):
        texts += len(getattr(each, "content", None) or "")
        vectors += len(getattr(each, "embedding", None) or b"")
    return 2000 + 16 * texts + 4 * vectors


#: The fields of changes that hold what they add.
_ADDED = ("fact", "or_add", "reflection")
