"""Read facts, reflections, texts, policies and scopes, and update buffers of reflections."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec
from pymongo import UpdateOne

from edenmem.models.ids import as_utc, utc_now
from edenmem.models.integrity import Finding
from edenmem.models.memory import (
    Consolidation,
    Fact,
    FailedDrafts,
    Held,
    HeldCount,
    Policy,
    Reflection,
    ScopeSummary,
)
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document, Sort
from edenmem.store.mongo.core.collections import FACT_KEY
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EPOCH,
    EVERYTHING,
    IN_LIMIT,
    Filter,
    build_consolidated_filters,
    build_consolidated_key,
    dated,
    fact_fields,
    fact_filters,
    group_filters,
    id_parts,
    object_id,
    object_ids,
    owner_fields,
    policy_id,
    unexpired,
    within_times,
)
from edenmem.store.mongo.core.readiness import read_fact_keys
from edenmem.store.protocol.store import batched
from edenmem.text import word_count

_T = TypeVar("_T", Fact, Reflection, Held)

_BY_RECENT = (("recent_at", -1), ("updated_at", -1), ("formed_at", -1), ("_id", 1))
_BY_UPDATED = (("updated_at", -1), ("formed_at", -1), ("_id", 1))
_BY_EXPIRY = (("expires_at", 1),)
_BY_ID = (("_id", 1),)
_BY_HELD = (("held_at", -1), ("_id", 1))
_BY_FORMED = (("formed_at", -1), ("_id", 1))


class MongoMemory:
    """Implements `edenmem.store.protocol.memory.Memory`: always for exact scopes."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    # -- facts -------------------------------------------------------------------------------

    def facts(
        self, filter: FactFilter, *, limit: int | None = None, with_vectors: bool = False
    ) -> Iterator[Fact]:
        walks = [
            self._find_facts(walk, sort, with_vectors=with_vectors)
            for owner in fact_filters(filter)
            for walk, sort in _recent_walks(owner, before=filter.recent_before)
        ]
        return islice(_newest_first(walks, "recent_at"), limit)

    def recent_facts(
        self, scopes: Sequence[Scope], *, since: datetime, limit: int, live_at: datetime
    ) -> list[Fact]:
        if limit < 1:
            return []
        calls = [
            partial(self._newest_facts, walk, sort, limit)
            for owner in group_filters(scopes, fact_fields)
            for walk, sort in _recent_walks({**owner, **unexpired(live_at)}, since)
        ]
        walks = (iter(facts) for facts in self._db.run_all(calls))
        return list(islice(_newest_first(walks, "recent_at"), limit))

    def expired_facts(
        self, at: datetime, *, agent_ids: Sequence[str] | None = None, limit: int
    ) -> list[Fact]:
        agents = {} if agent_ids is None else {"agent_id": {"$in": object_ids(agent_ids)}}
        return list(self._find_facts({"expires_at": {"$lte": at}, **agents}, _BY_EXPIRY, limit))

    def _newest_facts(self, filter: Filter, sort: Sort, limit: int) -> list[Fact]:
        facts = list(self._find_facts(filter, sort, limit))
        (field, _), *others = sort
        if len(facts) < limit or others == list(_BY_ID):
            return facts
        # The index does not order facts with equal times by ID, so the last time is queried again.
        last = facts[-1].recent_at
        ties = self._find_facts({**filter, field: last}, _BY_ID, limit)
        return [*(fact for fact in facts if fact.recent_at > last), *ties]

    def _find_facts(
        self, filter: Filter, sort: Sort, limit: int = 0, *, with_vectors: bool = False
    ) -> Iterator[Fact]:
        fields = None if with_vectors else codec.NO_VECTOR
        found = self._db.facts.find(filter, fields, sort=sort, limit=limit)
        return (codec.fact_from(each, with_vector=with_vectors) for each in found)

    def fact(self, fact_id: str, *, with_vector: bool = False) -> Fact | None:
        found = self._find_facts({"_id": object_id(fact_id)}, (), 1, with_vectors=with_vector)
        return next(found, None)

    def facts_by_ids(
        self, scopes: Sequence[Scope], fact_ids: Sequence[str], *, with_vectors: bool = False
    ) -> dict[str, Fact]:
        filters = [
            {"_id": {"$in": part}, **owner}
            for part in id_parts(fact_ids)
            for owner in group_filters(scopes, fact_fields)
        ]
        found = self._db.find_all(
            self._db.facts, filters, None if with_vectors else codec.NO_VECTOR
        )
        facts = (codec.fact_from(document, with_vector=with_vectors) for document in found)
        return {fact.id: fact for fact in facts}

    def facts_by_hashes(self, scope: Scope, hashes: Sequence[str]) -> dict[str, Fact]:
        filters = [
            {**fact_fields(scope), "hash": {"$in": part}}
            for part in batched(dict.fromkeys(hashes), IN_LIMIT)
        ]
        found = self._db.find_all(self._db.facts, filters, codec.NO_VECTOR)
        return {fact.hash: fact for fact in map(codec.fact_from, found)}

    def duplicate_facts(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        if read_fact_keys(self._db).final:
            return
        match = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        fields = [field for field, _ in FACT_KEY.keys]
        pipeline: list[dict[str, Any]] = [
            {"$match": match},
            {"$group": {"_id": {field: f"${field}" for field in fields}, "count": {"$sum": 1}}},
            {"$match": {"count": {"$gt": 1}}},
        ]
        for group in self._db.facts.aggregate(pipeline):
            same = {field: group["_id"].get(field) for field in fields}
            found = codec.read_owned(codec.fact_from, self._db.facts.find(same, codec.NO_VECTOR))
            facts = sorted(found, key=lambda fact: (fact.formed_at, fact.id))
            for fact in facts[1:]:
                yield Finding(
                    target_type="fact",
                    target_id=fact.id,
                    detail=f"has the same text as {facts[0].id}, which is older",
                    agent_id=fact.agent_id,
                    scope=fact.home,
                    text=fact.content,
                    related=(facts[0].id,),
                )

    # -- reflections -------------------------------------------------------------------------

    def reflections(
        self,
        scopes: Sequence[Scope],
        *,
        absorbed: bool | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> Iterator[Reflection]:
        # One query per value of the flag: old documents lack it.
        flags = {None: (False, None, True), False: (False, None), True: (True,)}[absorbed]
        times = within_times(since, before)
        ranges: list[Filter] = dated(times) if times else [{}]
        walks = [
            self._db.reflections.find({**owner, "absorbed": flag, **range}, sort=_BY_FORMED)
            for owner in group_filters(scopes)
            for flag in flags
            for range in ranges
        ]
        read = (map(codec.reflection_from, walk) for walk in walks)
        return islice(_newest_first(read, "formed_at"), limit)

    def reflection(self, reflection_id: str) -> Reflection | None:
        found = self._db.reflections.find_one({"_id": object_id(reflection_id)})
        return None if found is None else codec.reflection_from(found)

    def held(
        self, scopes: Sequence[Scope] | None, *, agent_id: str | None = None
    ) -> Iterator[Held]:
        owners = [_of_agent(agent_id)] if scopes is None else group_filters(scopes)
        walks = (self._db.held.find(owner, sort=_BY_HELD) for owner in owners)
        return _newest_first((map(codec.held_from, walk) for walk in walks), "held_at")

    def count_held(self, *, agent_id: str | None = None) -> HeldCount:
        group = {"_id": None, "number": {"$sum": 1}, "oldest": {"$min": "$held_at"}}
        for row in self._db.held.aggregate([{"$match": _of_agent(agent_id)}, {"$group": group}]):
            return HeldCount(number=int(row["number"]), oldest=codec.moment(row["oldest"]))
        return HeldCount()

    def reflections_by_ids(self, reflection_ids: Sequence[str]) -> dict[str, Reflection]:
        found = self._db.find_by_ids(self._db.reflections, reflection_ids)
        reflections = codec.read_owned(codec.reflection_from, found)
        return {reflection.id: reflection for reflection in reflections}

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        filters = [{"propagated_from": {"$in": part}} for part in id_parts(reflection_ids)]
        documents = self._db.find_all(self._db.reflections, filters)
        found = codec.read_owned(codec.reflection_from, documents)
        return list({reflection.id: reflection for reflection in found}.values())

    def pending(self, scope: Scope) -> list[Reflection]:
        document = self._db.consolidated.find_one(build_consolidated_key(scope))
        if document is None:
            return []
        ids = codec.text_ids(document.get("unabsorbed_ids"))
        found = self._db.find_by_ids(self._db.reflections, ids, **owner_fields(scope))
        return sorted(map(codec.reflection_from, found), key=lambda reflection: reflection.order)

    # -- texts and policies ------------------------------------------------------------------

    def consolidations(self, scopes: Sequence[Scope]) -> dict[Scope, Consolidation]:
        wanted = frozenset(scopes)
        documents = self._db.find_all(self._db.consolidated, build_consolidated_filters(scopes))
        owners = ((codec.find_text_scope(document), document) for document in documents)
        return {
            scope: codec.consolidation_from(document)
            for scope, document in owners
            if scope is not None and scope in wanted
        }

    def failed_drafts(self, scopes: Sequence[Scope]) -> dict[Scope, FailedDrafts]:
        documents = self._db.find_all(self._db.consolidated, build_consolidated_filters(scopes))
        return {
            scope: FailedDrafts(
                codec.text(failed.get("fingerprint")),
                codec.number(failed.get("count")),
                tuple((int(number), str(each)) for number, each in failed.get("reviews") or ()),
            )
            for document in documents
            if isinstance(failed := document.get("failed_drafts"), dict)
            and (scope := codec.find_text_scope(document)) is not None
        }

    def policies(self, scopes: Sequence[Scope]) -> dict[Scope, Policy]:
        documents = self._policy_documents(scopes)
        policies = (codec.policy_from(document) for document in documents)
        return {policy.home: policy for policy in policies if policy is not None}

    def _policy_documents(self, scopes: Sequence[Scope]) -> Iterator[Document]:
        ids = [policy_id(scope) for scope in dict.fromkeys(scopes)]
        filters = [{"_id": {"$in": part}} for part in batched(ids, IN_LIMIT)]
        return self._db.find_all(self._db.policies, filters)

    def shards(self, agent_id: str) -> list[Policy]:
        documents = self._db.policies.find(
            {"agent_id": object_id(agent_id), "scope": "shard"}, sort=[("shard", 1)]
        )
        policies = (codec.policy_from(document) for document in documents)
        return [policy for policy in policies if policy is not None]

    # -- scopes ------------------------------------------------------------------------------

    def scopes(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
        min_pending: int = 0,
    ) -> Iterator[ScopeSummary]:
        if user_ids is not None and kinds and ScopeKind.USER not in kinds:
            return
        wanted = kinds if user_ids is None else (ScopeKind.USER,)
        found = summarize_scopes(self._db, agent_id, wanted, user_ids)
        for scope in sorted(found, key=lambda scope: (scope.agent_id, scope)):
            if found[scope].pending >= min_pending:
                yield found[scope]

    def scopes_of(self, agent_id: str) -> list[Scope]:
        found = {summary.scope for summary in self.scopes(agent_id=agent_id)}
        for kind in ScopeKind:
            # Keys have the form kind:agent or kind:agent:owner; ";" follows ":" in ASCII.
            within = {"scope_key": {"$gte": f"{kind}:{agent_id}", "$lt": f"{kind}:{agent_id};"}}
            for collection in (self._db.history, self._db.audit):
                for key in collection.distinct("scope_key", within):
                    owner = str(key).removeprefix(f"{kind}:{agent_id}").removeprefix(":")
                    found.add(Scope(kind, agent_id, owner))
        return sorted(found)

    def revisions(self, scopes: Sequence[Scope]) -> dict[Scope, int]:
        found = {
            document["_id"]: codec.number(document.get("revision"))
            for document in self._policy_documents(scopes)
        }
        return {scope: found.get(policy_id(scope), 0) for scope in scopes}

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        # There are few at any time, so the agent is filtered here.
        found = self._db.consolidated.find({"unpropagated_versions": {"$gte": 1}})
        texts = map(codec.consolidation_from, found)
        return sorted(
            (text.home for text in texts if agent_id in (None, text.agent_id)),
            key=lambda scope: (scope.agent_id, scope.kind, scope.owner),
        )


def _of_agent(agent_id: str | None) -> Filter:
    return EVERYTHING if agent_id is None else {"agent_id": object_id(agent_id)}


def _recent_walks(
    owner: Filter, since: datetime = EPOCH, *, before: datetime | None = None
) -> list[tuple[Filter, Sort]]:
    """Return the filters and orders of facts by what makes them recent, each on one index.

    Facts with ``said_at`` have ``recent_at``; the others are recent by their last change.
    """
    recent = within_times(since, before)
    said: tuple[Filter, Sort] = ({**owner, "recent_at": recent}, _BY_RECENT)
    unsaid = {**owner, "recent_at": None}
    formed = unsaid if since == EPOCH else {"formed_at": recent, **unsaid}
    if before is not None:  # or without a time
        formed = {"formed_at": {"$not": {"$gte": before}}, **unsaid}
    changed: list[tuple[Filter, Sort]] = [
        ({**unsaid, "updated_at": recent}, _BY_UPDATED),
        ({**formed, "updated_at": None}, _BY_FORMED),
    ]
    if "said_at" not in owner:
        return [said, *changed]
    return changed if owner["said_at"] is None else [said]


def _newest_first(streams: Iterable[Iterator[_T]], time: str) -> Iterator[_T]:
    """Merge streams that are newest first by a time; equal times are ordered by ID.

    Only items of one time are held in memory.
    """

    def order(item: _T) -> float:
        return -float(getattr(item, time).timestamp())

    for _, same_time in groupby(merge(*streams, key=order), key=order):
        yield from sorted(same_time, key=lambda item: item.id)


def agents_with_memory(db: Connection) -> list[str]:
    """Return the IDs of the agents with a fact, reflection, text or policy."""
    ids: set[str] = set()
    for collection in (db.facts, db.reflections, db.policies):
        ids.update(str(value) for value in collection.distinct("agent_id") if value)
    for kind in ScopeKind:
        values = db.consolidated.distinct("agent_id", {"scope": kind.value})
        ids.update(str(value) for value in values if value)
    return sorted(ids)


def summarize_scopes(
    db: Connection,
    agent_id: str | None,
    kinds: Sequence[ScopeKind],
    user_ids: Sequence[str] | None,
) -> dict[Scope, ScopeSummary]:
    """Summarize scopes, optionally only those of an agent, of these kinds or of these accounts."""
    found: dict[Scope, ScopeSummary] = {}
    match: Filter = dict(EVERYTHING) if agent_id is None else {"agent_id": object_id(agent_id)}
    if kinds:
        match["scope"] = {"$in": [kind.value for kind in kinds]}
    if user_ids is not None:
        match["user_id"] = {"$in": object_ids(user_ids)}
    for collection, is_fact in ((db.facts, True), (db.reflections, False)):
        for row in _count_owners(collection, match):
            if is_fact and row["scope"] == ScopeKind.SESSION:
                row["session_id"] = row.get("group_id")  # see `fact_fields`
            if scope := codec.scope_of(row):
                _add(found, scope, at=row["at"], **({"facts": row["count"]} if is_fact else {}))
    # The index of texts begins with the kind of scope.
    of_texts = [match] if agent_id is None else [{**match, "scope": k} for k in kinds or ScopeKind]
    texts = db.find_all(db.consolidated, of_texts)
    for text in codec.read_owned(codec.consolidation_from, texts):
        _add(
            found,
            text.home,
            pending=len(text.unabsorbed_ids),
            version=text.version,
            words=word_count(text.consolidated_content),
            text_limit=text.word_limit,
            last_consolidated_at=text.last_consolidated_at,
            at=text.updated_at,
        )
    for policy in codec.read_owned(codec.policy_from, db.policies.find(match)):
        _add(
            found,
            policy.home,
            active=policy.active,
            consolidate_at=policy.consolidate_at,
            word_limit=policy.word_limit,
            at=policy.updated_at,
        )
    return found


#: The expression for the scope of a document; ``session_id`` only if the session is the owner.
OWNER: Document = {
    **{name: f"${name}" for name in ("agent_id", "scope", "user_id", "group_id", "shard")},
    "session_id": {"$cond": [{"$eq": ["$scope", "session"]}, "$session_id", None]},
}


def _count_owners(collection: Collection, match: Filter) -> Iterator[Document]:
    """Yield a row per scope, with its fields, a count and the latest time."""
    group = {
        "_id": OWNER,
        "count": {"$sum": 1},
        "formed": {"$max": "$formed_at"},
        "updated": {"$max": "$updated_at"},
    }
    for row in collection.aggregate([{"$match": match}, {"$group": group}]):
        times = [as_utc(t) for t in (row["formed"], row["updated"]) if isinstance(t, datetime)]
        yield {**row["_id"], "count": row["count"], "at": max(times, default=None)}


def _add(
    found: dict[Scope, ScopeSummary], scope: Scope, *, at: datetime | None, **values: Any
) -> None:
    summary = found.get(scope) or ScopeSummary(scope=scope)
    times = [time for time in (summary.updated_at, at) if time is not None]
    found[scope] = msgspec.structs.replace(summary, updated_at=max(times, default=None), **values)


#: The field of the buffer.
BUFFER = "unabsorbed_ids"


def fill_buffers(db: Connection, reflections: Sequence[Reflection]) -> None:
    """Append reflections to their scopes' buffers, in order."""
    waiting: dict[Scope, list[str]] = {}
    for reflection in reflections:
        waiting.setdefault(reflection.home, []).append(reflection.id)
    made = {"consolidated_content": "", "createdAt": utc_now(), BUFFER: []}
    db.consolidated.upsert(
        [
            UpdateOne(build_consolidated_key(scope), {"$setOnInsert": made}, upsert=True)
            for scope in waiting
        ]
    )
    for document in db.find_all(db.consolidated, build_consolidated_filters(waiting)):
        scope = codec.find_text_scope(document)
        if scope in waiting:
            db.consolidated.bulk(moves(document, [(True, waiting[scope])]))


def moves(document: Document, steps: Sequence[tuple[bool, Sequence[str]]]) -> list[UpdateOne]:
    """Return the updates that add IDs to a buffer (True) or remove them.

    Other entries of the buffer stay, known or not.
    """
    key = {"_id": document["_id"]}
    stamp = {"$set": {"updatedAt": utc_now()}}
    updates = []
    if not isinstance(document.get(BUFFER), list):
        updates.append(UpdateOne(key, {"$set": {BUFFER: []}}))
    for waits, ids in steps:
        both = [*object_ids(ids), *ids]  # the buffer may hold text
        put = {"$addToSet": {BUFFER: {"$each": object_ids(ids)}}}
        update = put if waits else {"$pull": {BUFFER: {"$in": both}}}
        updates.append(UpdateOne(key, {**update, **stamp}))
    return updates
