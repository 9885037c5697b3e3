"""Apply change sets: read the state, plan with `edenmem.memory`, and write, in transactions.

Only fields that differ are written. The snapshot of the transaction guarantees that documents are
as they were read.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo import errors as driver

from edenmem.errors import ConflictError, StoreError
from edenmem.memory import Effect, Needs, Origin, State, Write, needs, plan_all
from edenmem.memory.state import ADDED, scopes_of
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
from edenmem.models.host import Agent, User
from edenmem.models.ids import utc_now
from edenmem.models.memory import (
    POLICY_FIELDS,
    Consolidation,
    Fact,
    FailedDrafts,
    Held,
    Policy,
    Reflection,
)
from edenmem.models.scope import Scope
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.apply.state import WAITING, Loader
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document, TransactionTooLarge, index_in
from edenmem.store.mongo.core.collections import CONSOLIDATED_KEY, FACT_KEY, Index
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    Filter,
    build_consolidated_filters,
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.memory.history import audit_document, history_document
from edenmem.store.mongo.memory.memory import BUFFER, moves
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
        return Loader(self._db, self._db.settings).load(needs, at)

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

    def set_failed_drafts(self, scope: Scope, failed: FailedDrafts) -> None:
        fields = {"failed_drafts": msgspec.structs.asdict(failed), "updatedAt": utc_now()}
        self._db.consolidated.update_one(build_consolidated_key(scope), {"$set": fields})

    def finish_absorbing(self, scope: Scope) -> None:
        document = self._db.consolidated.find_one(build_consolidated_key(scope))
        text = None if document is None else codec.consolidation_from(document)
        if text is not None:
            at = text.last_consolidated_at or text.updated_at or utc_now()
            into = {"consolidated_into": object_id(text.id), "updatedAt": utc_now()}
            marked = {"absorbed": True, "absorbed_at": at, **into}
            for part in id_parts(text.absorbed_ids):
                pending = {"_id": {"$in": part}, "absorbed": {"$ne": True}}
                self._db.reflections.update_many(pending, {"$set": marked})

    def settle_propagation(self, scope: Scope, version: int) -> None:
        update = {"$pull": {"unpropagated_versions": version}, "$set": {"updatedAt": utc_now()}}
        self._db.consolidated.update_one(build_consolidated_key(scope), update)


#: The unique key that a kind of change relies on.
_KEYS = {
    AddFact: FACT_KEY,
    ReviseFact: FACT_KEY,
    AddReflection: CONSOLIDATED_KEY,
    RestoreReflection: CONSOLIDATED_KEY,
    WriteConsolidation: CONSOLIDATED_KEY,
    RevertConsolidation: CONSOLIDATED_KEY,
    RepairBuffer: CONSOLIDATED_KEY,
}


def keys_for(changes: Iterable[Change]) -> tuple[Index, ...]:
    """Return the unique keys that the changes rely on.

    Removals rely on none, so that duplicates which prevent a key can be removed.
    """
    needed = (_KEYS.get(type(change)) for change in changes)
    return tuple({key.name: key for key in needed if key is not None}.values())


def _scopes_of(changes: Sequence[Change]) -> set[Scope]:
    """Return the scopes that changes may touch."""
    toggles = (change for change in changes if isinstance(change, SetAgentToggles))
    agents = {Scope.agent(change.agent_id) for change in toggles}
    return agents.union(*map(scopes_of, changes))


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
    for each in (change, *(getattr(change, name, None) for name in ADDED)):
        texts += len(getattr(each, "content", None) or "")
        vectors += len(getattr(each, "embedding", None) or b"")
    return 2000 + 16 * texts + 4 * vectors


#: Maps a vector, its model and its text's hash to the fields of a fact to set and to unset.
VectorUpdate = Callable[[bytes | None, str | None, str], tuple[Document, Document]]

#: The only fields that a change writes to an existing account.
_TOGGLES = ("user_memory_enabled", "agent_memory_enabled")


class Writer:
    """Writes the effects of one batch.

    Args:
        transaction: The transaction to write in.
        settings: The names of the host's collections.
        vector_update: Selects the fields for a vector.
    """

    def __init__(
        self,
        transaction: Transaction,
        settings: StoreSettings,
        vector_update: VectorUpdate,
    ) -> None:
        self._transaction = transaction
        self._settings = settings
        self._vector_update = vector_update
        self._now = utc_now()
        self._operations: dict[str, list[Any]] = {}
        #: Reflection IDs to add to (True) or remove from the buffer, by scope, in order.
        self._moves: dict[Scope, list[tuple[bool, list[str]]]] = {}
        self._unordered: dict[Scope, None] = {}
        self._repaired: dict[Scope, None] = {}

    def write(self, effects: Sequence[Effect]) -> None:
        """Write the effects and their audit entries."""
        for effect in effects:
            if effect.entry is not None:
                self._plan(effect)
        for collection, operations in self._operations.items():
            self._transaction.write(collection, operations)
        self._write_buffers()

    def _plan(self, effect: Effect) -> None:
        assert effect.entry is not None
        for write in effect.writes:
            self._document(write, effect)
        if effect.repairs is not None:
            self._repaired[effect.repairs] = None
        in_place = isinstance(effect.change, RestoreReflection | RevertConsolidation)
        for write in effect.writes:
            if isinstance(write.model, Reflection):
                self._move(write, in_place=in_place)
        for version in effect.versions:
            self._do(names.HISTORY, InsertOne(history_document(version, effect.life)))
        self._do(names.AUDIT, InsertOne(audit_document(effect.entry)))

    def _do(self, collection: str, operation: Any) -> None:
        self._operations.setdefault(collection, []).append(operation)

    def _update(
        self, collection: str, key: Filter, fields: Document, unset: Document | None = None
    ) -> None:
        update: Document = {"$set": {**fields, "updatedAt": self._now}}
        if unset:
            update["$unset"] = unset
        self._do(collection, UpdateOne(key, update))

    # -- documents ---------------------------------------------------------------------------

    def _document(self, write: Write, effect: Effect) -> None:
        model = write.model
        match model:
            case Fact():
                self._fact(write, effect)
            case Reflection():
                self._put(names.REFLECTIONS, write, codec.reflection_document)
            case Held():
                self._put(names.HELD, write, codec.held_document)
            case Consolidation():
                self._text(write, effect.origin)
            case Policy():
                self._policy(write)
            case Agent() | User():
                self._account(write, effect)

    def _put(self, collection: str, write: Write, encode: Callable[..., Document]) -> None:
        """Write a document whose fields all come from its model."""
        key = {"_id": object_id(write.model.id)}
        old, new = (
            None if each is None else encode(each, at=self._now) for each in (write.old, write.new)
        )
        if new is None:
            self._do(collection, DeleteOne(key))
        elif old is None:
            self._do(collection, InsertOne(new))
        else:
            self._update(collection, key, *_differences(old, new))

    def _fact(self, write: Write, effect: Effect) -> None:
        old, new = write.old, write.new
        key = {"_id": object_id(write.model.id)}
        if not isinstance(new, Fact):
            self._do(names.FACTS, DeleteOne(key))
            return
        mark = _mark(effect.origin, new.version, new.changed_at)
        vector, unset = self._vector_update(new.embedding, new.embedding_model, new.hash)
        fields = self._encode(new)
        if not isinstance(old, Fact):
            life = {"life": effect.life} if effect.life else {}
            self._do(names.FACTS, InsertOne({**fields, **vector, **mark, **life}))
            return
        changed, gone = _differences(self._encode(old), fields)
        if new.hash == old.hash and new.embedding is old.embedding:
            vector, unset = {}, {}  # the vector of another text would match words that are gone
        self._update(names.FACTS, key, {**changed, **vector, **mark}, {**gone, **unset})

    def _encode(self, fact: Fact) -> Document:
        bare = msgspec.structs.replace(fact, embedding=None)
        return codec.fact_document(bare, at=self._now, storage="array")

    def _text(self, write: Write, origin: Origin | None) -> None:
        old, new = write.old, write.new
        assert isinstance(new, Consolidation)
        # Without the field the platform uses its default; it would obey a 0.
        fields: Document = {"word_limit": new.word_limit} if new.word_limit else {}
        if origin is not None:
            fields |= {
                **codec.text_fields(new.consolidated_content, new.version),
                "absorbed_ids": object_ids(new.absorbed_ids),
                "updated_at": new.updated_at,
                **_mark(origin, new.version, self._now),
            }
        if new.last_consolidated_at != getattr(old, "last_consolidated_at", None):
            fields["last_consolidated_at"] = new.last_consolidated_at
        pending = getattr(old, "unpropagated_versions", ())
        if new.unpropagated_versions != pending:
            fields["unpropagated_versions"] = list(new.unpropagated_versions)
        if new.fixed != getattr(old, "fixed", ()):
            fields["fixed"] = codec.fixed_field(new)
        scope, key = new.home, {"_id": object_id(new.id)}
        if old is None:
            made = {"createdAt": self._now, "updatedAt": self._now}
            document = {
                **key,
                **build_consolidated_key(scope),
                "consolidated_content": "",
                BUFFER: [],
                **made,
                **fields,
            }
            self._do(names.CONSOLIDATED, InsertOne(document))
        else:
            gone: Document = {"failed_drafts": ""} if origin is not None else {}
            self._update(
                names.CONSOLIDATED,
                key,
                fields,
                gone if new.word_limit else {**gone, "word_limit": ""},
            )

    def _policy(self, write: Write) -> None:
        model, new = write.model, write.new
        assert isinstance(model, Policy)
        scope = model.home
        key = {"_id": policy_id(scope)}
        if not isinstance(new, Policy):
            # The document stays: it counts the scope's revisions.
            gone = dict.fromkeys((*POLICY_FIELDS, "version", "updated_at"), "")
            self._update(names.POLICIES, key, {}, gone)
            return
        fields = {
            **owner_fields(scope),
            **{name: getattr(new, name) for name in POLICY_FIELDS},
            "policy_id": object_id(new.id),
            "version": new.version,
            "updated_at": new.updated_at,
        }
        self._update(names.POLICIES, key, fields)

    def _account(self, write: Write, effect: Effect) -> None:
        collection, key = self._settings.users_collection, {"_id": object_id(write.model.id)}
        match write.old, write.new:
            case None, Agent() as agent:
                self._do(collection, InsertOne(host_codec.agent_document(agent)))
                return
            case None, User() as user:
                self._do(collection, InsertOne(host_codec.user_document(user)))
                return
            case _, None:
                self._do(collection, DeleteOne(key))
                return
        # Also written where a missing toggle has the requested meaning.
        toggles = {name: getattr(effect.change, name, None) for name in _TOGGLES}
        fields = {name: on for name, on in toggles.items() if on is not None}
        # An undo that switches off unsets the field, which may have been absent and means off.
        unset = {name: "" for name, on in fields.items() if effect.change.undoes and not on}
        if fields:
            kept = {name: on for name, on in fields.items() if name not in unset}
            self._update(collection, key, kept, unset)

    # -- buffers -----------------------------------------------------------------------------

    def _move(self, write: Write, *, in_place: bool) -> None:
        """Plan adding a reflection to the buffer, or removing it, if that changes."""
        waited, waits = write.waits
        if waited == waits:
            return
        reflection = write.model
        assert isinstance(reflection, Reflection)
        scope = reflection.home
        steps = self._moves.setdefault(scope, [])
        if not steps or steps[-1][0] is not waits:
            steps.append((waits, []))
        steps[-1][1].append(reflection.id)
        if waits and in_place:
            self._unordered[scope] = None

    def _write_buffers(self) -> None:
        """Write the buffers; unknown IDs in them stay."""
        for filter in build_consolidated_filters(sorted(self._moves)):
            for document in self._transaction.find(names.CONSOLIDATED, filter):
                scope = codec.find_text_scope(document)
                if scope in self._moves:
                    steps = self._moves[scope]
                    self._transaction.write(names.CONSOLIDATED, moves(document, steps))
        for scope in self._unordered:
            self._order(scope)
        for scope in self._repaired:
            self._order(scope, waiting=self._waiting(scope))

    def _waiting(self, scope: Scope) -> list[str]:
        key = {**owner_fields(scope), "absorbed": WAITING}
        found = self._transaction.find(names.REFLECTIONS, key, {"_id": 1})
        return [str(document["_id"]) for document in found]

    def _order(self, scope: Scope, *, waiting: Sequence[str] | None = None) -> None:
        """Sort a buffer by time, unknown entries first; ``waiting`` replaces its entries."""
        for document in self._transaction.find(names.CONSOLIDATED, build_consolidated_key(scope)):
            stored = document.get(BUFFER)
            entries = stored if isinstance(stored, list) else []
            # Keep IDs as stored: an old document may hold them as text.
            known = {str(each): each for each in entries}
            wanted = known if waiting is None else waiting
            times = {
                reflection.id: (reflection.formed_at, reflection.id)
                for part in id_parts(wanted)
                for reflection in codec.read_owned(
                    codec.reflection_from,
                    self._transaction.find(names.REFLECTIONS, {"_id": {"$in": part}}),
                )
                if waiting is None or reflection.home == scope
            }
            unknown = [] if waiting is not None else entries
            ordered = [each for each in unknown if str(each) not in times]
            ordered += [
                known.get(each, object_id(each)) for each in sorted(times, key=times.__getitem__)
            ]
            if ordered != stored:
                update = {"$set": {BUFFER: ordered, "updatedAt": self._now}}
                key = {"_id": document["_id"]}
                self._transaction.write(names.CONSOLIDATED, [UpdateOne(key, update)])


def _differences(old: Document, new: Document) -> tuple[Document, Document]:
    """Return the fields to set and to unset, to turn one document into the other."""
    changed = {name: value for name, value in new.items() if value != old.get(name)}
    return changed, {name: "" for name in old if name not in new}


def _mark(origin: Origin | None, version: int, at: datetime) -> Document:
    """Return the fields that record the origin of a version."""
    if origin is None or origin.change_id is None:
        return {}
    return codec.mark(
        origin.change_id, version, at=origin.at or at, action=origin.action, actor=origin.actor
    )
