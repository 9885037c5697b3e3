"""Find and count the traces of a subject in the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edenmem.models.backup import RecordKind, Selection
from edenmem.models.forgetting import Traces
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, id_parts, object_id
from edenmem.store.mongo.host.host import find_messages_by
from edenmem.store.mongo.walk.documents import walk_documents
from edenmem.store.mongo.walk.sources import SOURCES, narrow

#: Audit entries with content to empty.
FULL: Filter = {
    "$or": [{"before": {"$ne": None}}, {"after": {"$ne": None}}, {"reason": {"$ne": ""}}],
}
#: Formations with content to empty.
UNSETTLED: list[Filter] = [
    {"status": {"$nin": ["applied", "superseded"]}},
    {"decisions.0": {"$exists": True}},
    {"error": {"$ne": None}},
]


#: Kinds of removed data.
VERSIONS, ENTRIES = "versions in history", "audit entries (emptied)"
DERIVED = "derived reflections"


def count_traces(db: Connection, traces: Traces, derived: Sequence[str]) -> dict[str, int]:
    """Count the traces to remove; see `Erasure.count_traces`."""
    selection = Selection(traces=traces)

    def count(kind: RecordKind, condition: Filter | None = None) -> int:
        collection = SOURCES[kind].collection(db)
        filters = narrow(kind, selection)
        return sum(collection.count({**filter, **(condition or {})}) for filter in filters)

    def different(kind: RecordKind) -> int:
        collection = SOURCES[kind].collection(db)
        found = (collection.find(filter, {"_id": 1}) for filter in narrow(kind, selection))
        return len({repr(document["_id"]) for documents in found for document in documents})

    texts = walk_documents(db, (RecordKind.CONSOLIDATION,), selection)
    counts = {
        "facts": different(RecordKind.FACT),
        "reflections": different(RecordKind.REFLECTION),
        "held items": different(RecordKind.HELD),
        "texts": sum(bool(getattr(found.record, "version", 0)) for found in texts),
        "policies": count(RecordKind.POLICY, {"version": {"$gt": 0}}),
        VERSIONS: count(RecordKind.HISTORY),
        ENTRIES: count(RecordKind.AUDIT, FULL),
        DERIVED: 0,
        "formations (emptied)": sum(1 for _ in _find_unsettled(db, traces)),
        "cached contexts": _count_contexts(db, traces.agents),
    }
    for part in id_parts(derived):
        about = {"target_type": "reflection", "target_id": {"$in": part}}
        counts[DERIVED] += db.reflections.count({"_id": {"$in": part}})
        counts[VERSIONS] += db.history.count(about)
        counts[ENTRIES] += db.audit.count({"target_id": {"$in": part}, **FULL})
    return {kind: number for kind, number in counts.items() if number}


def _find_unsettled(db: Connection, traces: Traces) -> Iterator[Document]:
    """Yield the formations with content, or that may still continue."""
    for session_id in traces.own:
        yield from db.formations.find(
            {**_of(session_id, traces.agent_id), "$or": UNSETTLED}, {"changes": 0}
        )
    for session_id in traces.shared:
        messages = find_messages_by(db, session_id, traces.accounts, traces.messages)
        held = {**_of(session_id, traces.agent_id), "$or": UNSETTLED}
        for document in db.formations.find(held, {"changes": 0}) if messages else ():
            if not messages.keys().isdisjoint(ids_of_formation(document)):
                yield document


def _count_contexts(db: Connection, agents: Sequence[str]) -> int:
    return sum(db.sessions.count(filter) for filter in context_filters(agents))


def ids_of_formation(document: Document) -> list[Any]:
    """Return the messages from which a formation was made, even if it is superseded."""
    return [*(document.get("message_ids") or ()), *(document.get("superseded_message_ids") or ())]


def context_filters(agents: Sequence[str]) -> list[Filter]:
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


def _of(session_id: str, agent_id: str | None) -> Filter:
    agent = {} if agent_id is None else {"agent_id": object_id(agent_id)}
    return {"session_id": object_id(session_id), **agent}
