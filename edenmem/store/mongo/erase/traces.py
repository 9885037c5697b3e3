"""Where the traces of a subject are in the database, and how many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from edenmem.models.forgetting import Passage, Traces, whole_accounts
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    Filter,
    build_consolidated_filters,
    fact_fields,
    group_filters,
    id_parts,
    object_id,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.host.host import find_said_messages
from edenmem.store.protocol.store import batched

#: Scope keys in one ``$in``.
_KEYS = 500

#: What an audit entry has that is emptied. Pending ones are another matter (see `erasing`).
FULL: Filter = {
    "status": {"$ne": "pending"},
    "$or": [{"before": {"$ne": None}}, {"after": {"$ne": None}}, {"reason": {"$ne": ""}}],
}


#: What a formation has that is emptied.
UNSETTLED: list[Filter] = [
    {"status": {"$nin": ["applied", "superseded"]}},
    {"decisions.0": {"$exists": True}},
    {"error": {"$ne": None}},
]


def key_filters(scopes: Iterable[Scope]) -> list[Filter]:
    """Filters for what is kept by the key of its scope."""
    keys = [scope.key for scope in scopes]
    return [{"scope_key": {"$in": part}} for part in batched(keys, _KEYS)]


def account_filters(traces: Traces) -> list[Filter]:
    """Filters for audit entries of accounts: of no scope, they say what somebody is called."""
    parts = id_parts(whole_accounts(traces))
    return [{"target_id": {"$in": part}} for part in parts]


def source_filters(sessions: Sequence[str]) -> list[Filter]:
    """Filters for what comes from these sessions."""
    return [{"session_id": {"$in": part}} for part in id_parts(sessions)]


def trace_reflections(db: Connection, traces: Traces) -> Iterator[Reflection]:
    """Find the reflections that are traces; see `Erasure.trace_reflections`."""
    for document in _trace(db.reflections, _reflection_filters(traces)):
        yield codec.reflection_from(document)


def trace_texts(db: Connection, traces: Traces) -> Iterator[Passage]:
    """Find the texts that are traces; see `Erasure.trace_texts`."""
    for document in _trace(db.facts, _fact_filters(traces)):
        fact = codec.fact_from(document)
        yield passage("fact", fact.id, fact.content, fact.home)
    for reflection in trace_reflections(db, traces):
        yield passage("reflection", reflection.id, reflection.content, reflection.home)
    for document in _trace(db.consolidated, build_consolidated_filters(traces.scopes)):
        text = codec.consolidation_from(document)
        if text.consolidated_content:
            yield passage("consolidation", text.id, text.consolidated_content, text.home)


def _fact_filters(traces: Traces) -> list[Filter]:
    return [*group_filters(traces.scopes, fact_fields), *source_filters(traces.sources)]


def _reflection_filters(traces: Traces) -> list[Filter]:
    return [*group_filters(traces.scopes, owner_fields), *source_filters(traces.sources)]


def _trace(collection: Collection, filters: Sequence[Filter]) -> Iterator[Document]:
    """What any filter finds, without vectors, each once."""
    seen: set[Any] = set()
    for filter in filters:
        for document in collection.find(filter, codec.NO_VECTOR):
            if document["_id"] not in seen:
                seen.add(document["_id"])
                yield document


def count_traces(db: Connection, traces: Traces) -> dict[str, int]:
    """Count what is to be removed; see `Erasure.count_traces`."""

    def count(collection: Collection, filters: Iterable[Filter]) -> int:
        return sum(collection.count(filter) for filter in filters)

    def different(collection: Collection, filters: Sequence[Filter]) -> int:
        found = (collection.find(filter, {"_id": 1}) for filter in filters)
        return len({document["_id"] for documents in found for document in documents})

    keys = key_filters(traces.scopes)
    policies = id_parts(str(policy_id(scope)) for scope in traces.scopes)
    texts = _trace(db.consolidated, build_consolidated_filters(traces.scopes))
    counts = {
        "facts": different(db.facts, _fact_filters(traces)),
        "reflections": different(db.reflections, _reflection_filters(traces)),
        "texts": sum(1 for document in texts if codec.read_version(document)),
        "policies": count(
            db.policies, ({"_id": {"$in": part}, "version": {"$gt": 0}} for part in policies)
        ),
        "versions in history": count(db.history, keys),
        "audit entries (emptied)": count(
            db.audit, ({**key, **FULL} for key in (*keys, *account_filters(traces)))
        ),
        "formations (emptied)": sum(1 for _ in _find_unsettled(db, traces)),
        "cached contexts": _count_contexts(db, traces.agents),
    }
    return {kind: number for kind, number in counts.items() if number}


def _find_unsettled(db: Connection, traces: Traces) -> Iterator[Document]:
    """The formations that hold something, or may still be gone on with."""
    for session_id in traces.own:
        yield from db.formations.find(
            {**_of(session_id, traces.agent_id), "$or": UNSETTLED}, {"changes": 0}
        )
    for session_id in traces.shared:
        said = find_said_messages(db, session_id, traces.accounts)
        held = {**_of(session_id, traces.agent_id), "$or": UNSETTLED}
        for document in db.formations.find(held, {"changes": 0}) if said else ():
            if not said.keys().isdisjoint(ids_of_formation(document)):
                yield document


def _count_contexts(db: Connection, agents: Sequence[str]) -> int:
    return sum(db.sessions.count(filter) for filter in context_filters(agents))


def ids_of_formation(document: Document) -> list[Any]:
    """The messages that a formation was made from, also if it is superseded."""
    return [*(document.get("message_ids") or ()), *(document.get("superseded_message_ids") or ())]


def context_filters(agents: Sequence[str]) -> list[Filter]:
    """Filters for the sessions of agents that have a cached context: in the platform's field, and
    in ours for an agent that is not the session's first."""
    cached: Filter = {"memory_context.cached_memory_context": {"$gt": ""}}
    first = [{"agents": {"$in": part}, **cached} for part in id_parts(agents)]
    others = [
        {"agents": object_id(agent), f"edenmem_contexts.{agent}": {"$exists": True}}
        for agent in agents
    ]
    return [*first, *others]


def _of(session_id: str, agent_id: str | None) -> Filter:
    agent = {} if agent_id is None else {"agent_id": object_id(agent_id)}
    return {"session_id": object_id(session_id), **agent}


def passage(place: str, id: str, text: str, scope: Scope) -> Passage:
    """The text of a thing of memory itself."""
    return Passage(place=place, id=id, target_type=place, target_id=id, text=text, scope=scope)
