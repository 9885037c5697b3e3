"""Remove the traces of a subject in bulk, on indexes.

Few steps are transactions; their order makes them safe to interrupt. Derived memory goes before
its source, through which it is found; a reflection leaves its buffer before it is deleted; every
step finds what is left when it is repeated.
"""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo import DeleteMany, UpdateOne

from edenmem.errors import UsageError
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import FORGOTTEN, Forgetting, Passage, Traces
from edenmem.models.ids import as_utc, utc_now
from edenmem.models.memory import POLICY_FIELDS, Fact, FactFields, Reflection
from edenmem.models.records import content_mark, users_mark
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import BATCH, Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EVERYTHING,
    IN_LIMIT,
    Filter,
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
)
from edenmem.store.mongo.core.transactions import Transaction, Transactions, touch
from edenmem.store.mongo.host.contexts import CONTEXT_FIELDS
from edenmem.store.mongo.host.host import find_messages_by
from edenmem.store.mongo.memory.audit_log import count_replies, erase_items, erase_told
from edenmem.store.mongo.memory.history import audit_document
from edenmem.store.mongo.search.vectors import pages_by_id
from edenmem.store.mongo.walk.sources import narrow
from edenmem.store.protocol.erasure import KINDS
from edenmem.store.protocol.store import batched

_AT_ONCE = 500

_DERIVED, _REPLIES = "derived reflections", "notes of replies"
_VERSIONS, _ENTRIES = KINDS[RecordKind.HISTORY], KINDS[RecordKind.AUDIT]

#: What is removed item by item, and its collection.
_ITEMS = {
    RecordKind.FACT: names.FACTS,
    RecordKind.REFLECTION: names.REFLECTIONS,
    RecordKind.HELD: names.HELD,
}

#: Audit entries with content to empty.
_FULL: Filter = {
    "$or": [{"before": {"$ne": None}}, {"after": {"$ne": None}}, {"reason": {"$ne": ""}}],
}

#: The platform's session fields with cached memory, or its time.
_CACHES = (
    "cached_memory_context",
    "memory_context_timestamp",
    "cached_episode_memories",
    "episode_memories_timestamp",
    "agent_memory_timestamp",
    "user_memory_timestamp",
)

#: Fields of a policy document that name its scope; its ID is a hash of them.
_OWNER = ("agent_id", "scope", "user_id", "group_id", "session_id", "shard")

#: An update that removes every cached context of a session.
UNCACHED: Filter = {
    "$unset": {
        **{f"memory_context.{field}": "" for field in CONTEXT_FIELDS},
        "edenmem_contexts": "",
    }
}

#: An update that leaves only the revision of a scope, which never restarts: a context cached
#: before could be valid again.
_EMPTY_POLICY: Filter = {
    "$inc": {"revision": 1},
    "$unset": dict.fromkeys((*POLICY_FIELDS, *_OWNER, "policy_id", "version", "updated_at"), ""),
}


class MongoErasure:
    """Implements `edenmem.store.protocol.erasure.Erasure`."""

    def __init__(self, db: Connection, transactions: Transactions) -> None:
        self._db = db
        self._transactions = transactions

    # -- counts ------------------------------------------------------------------------------

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        counts = Counter(
            sessions=len(traces.own),
            messages=sum(self._db.messages.count({"session": id}) for id in object_ids(traces.own)),
        )
        shared = "messages" if traces.facts else "messages in shared sessions"
        for session_id in traces.shared:
            found = find_messages_by(self._db, session_id, traces.accounts, traces.messages)
            counts[shared] += len(found)
        for part in id_parts(traces.accounts):
            counts["accounts"] += self._db.users.count({"_id": {"$in": part}})
        return dict(+counts)

    def count_traces(self, traces: Traces, derived: Sequence[str]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for part in id_parts(derived):
            counts[_DERIVED] += self._db.reflections.count({"_id": {"$in": part}})
            counts[_ENTRIES] += self._db.audit.count({"target_id": {"$in": part}, **_FULL})
        contexts = _context_filters(traces.agents)
        counts["cached contexts"] = sum(map(self._db.sessions.count, contexts))
        counts[_REPLIES] = count_replies(self._db, traces)
        return dict(+counts)

    # -- forgettings -------------------------------------------------------------------------

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        key, now = {"_id": object_id(forgetting.id)}, utc_now()
        new = {"begun_at": forgetting.begun_at, "counts": forgetting.counts}

        def begin(transaction: Transaction) -> Forgetting:
            # Exclusive: later changes are refused, and earlier ones are visible to be erased.
            transaction.guard(exclusive=True)
            is_open = any(transaction.find(names.FORGETTINGS, {**key, "closed_at": None}))
            begun = {} if is_open else new
            update = UpdateOne(
                key,
                {
                    "$set": {"kind": forgetting.kind, "closed_at": None, "updatedAt": now, **begun},
                    "$addToSet": {"blocks": {"$each": list(forgetting.blocks)}},
                    "$setOnInsert": {"createdAt": now},
                },
                upsert=True,
            )
            transaction.write(names.FORGETTINGS, [update])
            return _forgetting(transaction.find(names.FORGETTINGS, key)[0])

        return self._transactions.run(begin)

    def forgettings(self) -> list[Forgetting]:
        found = [_forgetting(document) for document in self._db.forgettings.find(EVERYTHING)]
        found.sort(key=lambda one: (-one.begun_at.timestamp(), one.id))
        return sorted(found, key=lambda one: one.closed_at is not None)

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        # The entry first: an interrupted close is repeated with the same entry.
        self.add_entries([entry])
        self._db.forgettings.update_one(
            {"_id": object_id(forgetting_id), "closed_at": None},
            {"$set": {"closed_at": at, "counts": counts, "updatedAt": utc_now()}},
        )

    def add_entries(self, entries: Sequence[AuditEntry]) -> None:
        self._db.audit.insert_new([audit_document(entry) for entry in entries])

    def find_returned(self, since: datetime) -> Iterator[Fact | Reflection]:
        """Yield memory without a formation that has forgotten messages as its sources."""
        if self._db.forgotten_messages.find_one(EVERYTHING) is None:
            return
        new: Filter = {"_id": {"$gte": ObjectId.from_datetime(since)}, "formation_id": None}
        kinds: tuple[tuple[Collection, Callable[[Document], Any]], ...] = (
            (self._db.facts, codec.fact_from),
            (self._db.reflections, codec.reflection_from),
        )
        for collection, decode in kinds:
            documents = pages_by_id(collection, new, codec.NO_VECTOR)
            for found in batched(codec.read_owned(decode, documents), BATCH):
                sources = (id for memory in found for id in memory.source_message_ids)
                marks = self._db.find_by_ids(self._db.forgotten_messages, sources, {"_id": 1})
                marked = {str(mark["_id"]) for mark in marks}
                for memory in found:
                    if not marked.isdisjoint(memory.source_message_ids):
                        yield memory

    def find_old_contexts(self, *, since: datetime, before: datetime) -> dict[str, datetime]:
        cached_at = "memory_context.memory_context_timestamp"
        stale: Filter = {
            "memory_context.last_activity": {"$gte": since},
            "memory_context.cached_memory_context": {"$gt": ""},
            cached_at: {"$lt": before},
        }
        found = self._db.sessions.find(stale, {cached_at: 1})
        return {
            str(each["_id"]): as_utc(each["memory_context"]["memory_context_timestamp"])
            for each in found
        }

    # -- memory ------------------------------------------------------------------------------

    def erase(
        self, traces: Traces, derived: Sequence[str], *, at: datetime, run: str
    ) -> dict[str, int]:
        removed: Counter[str] = Counter()
        mark = content_mark(run)
        for reflection_id in derived:
            found = list(self._db.reflections.find({"_id": object_id(reflection_id)}))
            removed[_DERIVED] += self._erase_page(RecordKind.REFLECTION, found, mark, removed)
        wanted = Selection(traces=traces)
        # The past before the facts, which a later run needs to find; also of those that are gone.
        for part in id_parts((*traces.facts, *traces.held)):
            self._erase_past(part, mark, removed)
        for kind, name in _ITEMS.items():
            for filter in narrow(kind, wanted):
                for page in self._pages(self._db.collection(name), filter):
                    removed[KINDS[kind]] += self._erase_page(kind, page, mark, removed)
        for filter in narrow(RecordKind.CONSOLIDATION, wanted):
            for page in self._pages(self._db.consolidated, filter):
                found_in = (codec.find_text_scope(document) for document in page)
                touched = [scope for scope in found_in if scope is not None]
                removed["texts"] += sum(codec.read_version(document) > 0 for document in page)
                self._delete(names.CONSOLIDATED, page, touched)
        for filter in narrow(RecordKind.POLICY, wanted):
            removed["policies"] += self._db.policies.count({**filter, "version": {"$gt": 0}})
            self._db.policies.update_many(filter, _EMPTY_POLICY)
        for filter in narrow(RecordKind.HISTORY, wanted):
            removed[_VERSIONS] += self._db.history.delete_many(filter)
        for filter in narrow(RecordKind.AUDIT, wanted):
            removed[_ENTRIES] += self._empty_audit(filter, mark)
        for collection in (self._db.facts, self._db.reflections):
            self._unrelate(collection, traces, users_mark(run))
        removed[_REPLIES] += erase_told(self._db, traces)
        removed["cached contexts"] += self._drop_contexts(traces)
        return dict(+removed)

    def _unrelate(self, collection: Collection, traces: Traces, mark: str) -> None:
        """Remove the accounts from ``related_users`` of the remaining memory."""
        agent = None if traces.agent_id is None else object_id(traces.agent_id)
        for part in id_parts(traces.accounts):
            users = {"$in": part}
            found = collection.find({"related_users": users}, {"agent_id": 1})
            ids = [each["_id"] for each in found if agent in (None, each.get("agent_id"))]
            for some in batched(ids, _AT_ONCE):
                these = {"$in": some}
                # All users: what is left of a list could not be sealed.
                self._db.audit.update_many(
                    {"target_id": these, "salts.users": {"$exists": True}},
                    {"$unset": dict.fromkeys(_USERS, ""), "$addToSet": {"erased": mark}},
                )
                collection.update_many({"_id": these}, {"$pull": {"related_users": users}})

    def mark_messages(self, traces: Traces) -> None:
        filters: list[Filter] = [{"session": {"$in": part}} for part in id_parts(traces.own)]
        filters += [
            {"session": {"$in": part}, "sender": {"$in": object_ids(traces.accounts)}}
            for part in id_parts(traces.shared)
        ]
        filters += [{"_id": {"$in": part}} for part in id_parts(traces.messages)]
        for messages in batched(
            self._db.find_all(self._db.messages, filters, {"_id": 1}), IN_LIMIT
        ):
            ids = dict.fromkeys(message["_id"] for message in messages)
            self._db.forgotten_messages.insert_new([{"_id": id} for id in ids])

    def _pages(self, collection: Collection, filter: Filter) -> Iterator[list[Document]]:
        """Yield pages of the remaining documents until there are none."""
        while page := list(collection.find(filter, codec.NO_VECTOR, limit=_AT_ONCE)):
            yield page

    def _erase_page(
        self,
        kind: RecordKind,
        documents: Sequence[Document],
        mark: str,
        removed: Counter[str],
    ) -> int:
        """Erase facts, reflections or held items with their past; return how many."""
        homes: dict[Scope, list[Any]] = {}
        if kind is RecordKind.FACT:
            homes = {fact.home: [] for fact in codec.read_owned(codec.fact_from, documents)}
        elif kind is RecordKind.REFLECTION:
            for found in codec.read_owned(codec.reflection_from, documents):
                both = (object_id(found.id), found.id)  # the buffer may hold text
                homes.setdefault(found.home, []).extend(both)
            for scope, ids in homes.items():
                self._db.consolidated.update_one(
                    build_consolidated_key(scope),
                    {"$pull": {"unabsorbed_ids": {"$in": ids}}, "$set": {"updatedAt": utc_now()}},
                )
        self._erase_past([document["_id"] for document in documents], mark, removed)
        return self._delete(_ITEMS[kind], documents, homes)

    def _delete(
        self, collection: str, documents: Sequence[Document], touched: Iterable[Scope]
    ) -> int:
        """Delete documents, and raise the revisions of their scopes in the same transaction.

        Cached contexts depend on the revisions: no context with the old content stays valid.
        """
        ids = [document["_id"] for document in documents]

        def delete(transaction: Transaction) -> int:
            transaction.touch(touched)
            return transaction.write(collection, [DeleteMany({"_id": {"$in": ids}})])

        return self._transactions.run(delete)

    def _erase_past(self, ids: Sequence[Any], mark: str, removed: Counter[str]) -> None:
        """Remove the history of targets and notes of them, and empty their audit entries."""
        erase_items(self._db, [str(each) for each in ids])
        for kind in ("fact", "reflection"):
            removed[_VERSIONS] += self._db.history.delete_many(
                {"target_type": kind, "target_id": {"$in": ids}}
            )
        removed[_ENTRIES] += self._empty_audit({"target_id": {"$in": ids}}, mark)

    def _empty_audit(self, key: Filter, mark: str) -> int:
        return self._db.audit.update_many({**key, **_FULL}, _emptied(mark))

    def _drop_contexts(self, traces: Traces) -> int:
        dropped = 0
        fields = {f"memory_context.{field}": "" for field in CONTEXT_FIELDS}
        fields |= {f"edenmem_contexts.{agent}": "" for agent in traces.agents}
        for filter in _context_filters(traces.agents):
            dropped += self._db.sessions.update_many(filter, {"$unset": fields})
        for part in id_parts((*traces.own, *traces.shared)):
            self._db.sessions.update_many(
                {"_id": {"$in": part}, "memory_context": {"$type": "object"}},
                {"$unset": {f"memory_context.{field}": "" for field in _CACHES}},
            )
        return dropped

    # -- conversations------------------------------------------------------------------------

    def erase_messages(self, traces: Traces) -> dict[str, int]:
        raise UsageError(
            "conversations in MongoDB belong to the platform and cannot be removed here",
            hint="leave out --messages, and remove them on the platform",
        )

    def redact(self, passages: Sequence[Passage], *, run: str) -> int:
        emptied = 0
        updates: dict[str, tuple[Collection, Filter]] = {
            "previous": (self._db.facts, {"$set": {"previous_content": None}}),
            "history": (
                self._db.history,
                {
                    "$set": {"content": FORGOTTEN},
                    "$unset": dict.fromkeys(("snapshot", *FactFields.__struct_fields__), ""),
                },
            ),
            "audit": (self._db.audit, _emptied(content_mark(run))),
            "formation": (
                self._db.formations,
                # A worker's next step must not write back what it knows.
                {"$set": {"decisions": [], "error": None, "updated_at": utc_now()}},
            ),
            "context": (self._db.sessions, UNCACHED),
        }
        for kind, (collection, update) in updates.items():
            for part in id_parts(p.id for p in passages if p.kind == kind):
                emptied += collection.update_many({"_id": {"$in": part}}, update)
        for part in id_parts(p.id for p in passages if p.kind == "doubt"):
            for collection in (self._db.facts, self._db.reflections):
                in_doubt: Filter = {"_id": {"$in": part}, "unconfirmed": {"$gt": ""}}
                collection.update_many(in_doubt, {"$set": {"unconfirmed": FORGOTTEN}})
                emptied += collection.update_many({"_id": {"$in": part}}, {"$unset": {"quote": ""}})
        inside = (p.scope for p in passages if p.kind in ("previous", "doubt"))
        changed = (scope for scope in inside if scope is not None)
        touch(self._db, dict.fromkeys(changed))
        return emptied


#: Where an audit entry has related users, and their salt.
_USERS = ("before.related_users", "after.related_users", "salts.users")


def _emptied(mark: str) -> Filter:
    """Return the update that empties an audit entry with its salts (`StoredEntry`)."""
    return {
        "$set": {"before": None, "after": None, "reason": "", "updatedAt": utc_now()},
        "$unset": dict.fromkeys(("salts.content", "salts.users", "salts.reason"), ""),
        "$addToSet": {"erased": mark},
    }


def _forgetting(document: Document) -> Forgetting:
    counts: Filter = document.get("counts") or {}
    return Forgetting(
        id=str(document["_id"]),
        kind=document["kind"],
        begun_at=codec.require_moment(document, "begun_at"),
        closed_at=codec.moment(document.get("closed_at")),
        blocks=tuple(sorted(codec.text_ids(document.get("blocks")))),
        counts={str(kind): codec.number(number) for kind, number in counts.items()},
    )


def _context_filters(agents: Sequence[str]) -> list[Filter]:
    """Return filters for sessions with a cached context of the agents.

    The platform's field holds that of the session's first agent, ours those of the others.
    """
    cached: Filter = {"memory_context.cached_memory_context": {"$gt": ""}}
    first = [{"agents": {"$in": part}, **cached} for part in id_parts(agents)]
    others = [
        {"agents": object_id(agent), f"edenmem_contexts.{agent}": {"$exists": True}}
        for agent in agents
    ]
    return [*first, *others]
