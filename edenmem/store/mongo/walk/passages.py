"""Every text that is stored, for whoever looks for somebody in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.forgetting import FORGOTTEN, Passage, list_texts, origin_in
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.store.common.formation_words import wording_of
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import BATCH, Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EVERYTHING, Filter
from edenmem.store.mongo.formations.formations import formation_from
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.mongo.memory.history import audit_from, history_from

#: The platform's fields of a cached context, and ours beside them.
CONTEXT_FIELDS = ("cached_memory_context", "memory_context_timestamp", "edenmem_fingerprint")


def read_passages(db: Connection) -> Iterator[Passage]:
    """Read every text that is stored; see `Walk.passages`."""
    readers: Sequence[tuple[Collection, Filter, Callable[[Document], Iterator[Passage]]]] = (
        (db.facts, codec.NO_VECTOR, _of_fact),
        (db.reflections, {}, _of_reflection),
        (db.consolidated, {}, _of_text),
        (db.policies, {}, _of_policy),
        (db.history, {}, _of_history),
        (db.audit, {}, _of_audit),
        (db.formations, {}, _of_formation),
        (db.sessions, {"memory_context": 1, "edenmem_contexts": 1}, _of_session),
    )
    for collection, projection, read in readers:
        for document in _whole(collection, projection):
            try:
                yield from read(document)
            except ScopeError:  # somebody else's document without an owner: nobody reads it
                continue


def _whole(collection: Collection, projection: Filter) -> Iterator[Document]:
    """All documents in the order of their ids, in pages without a cursor between them."""
    after = EVERYTHING
    while True:
        page = list(collection.find(after, projection or None, sort=(("_id", 1),), limit=BATCH))
        yield from page
        if len(page) < BATCH:
            return
        after = {"_id": {"$gt": page[-1]["_id"]}}


def _passages(
    place: str,
    id: str,
    scope: Scope | None,
    *texts: str | None,
    of: Fact | Reflection | None = None,
) -> Iterator[Passage]:
    kind = {"previous": "fact"}.get(place, place)
    for text in texts:
        if text:
            yield Passage(
                place=place,
                id=id,
                target_type=kind,
                target_id=id,
                text=text,
                scope=scope,
                session_id=of.session_id if of else None,
                source_message_ids=of.source_message_ids if of else (),
            )


def _of_fact(document: Document) -> Iterator[Passage]:
    fact = codec.fact_from(document)
    yield from _passages("fact", fact.id, fact.home, fact.content, of=fact)
    yield from _passages("previous", fact.id, fact.home, fact.previous_content, of=fact)


def _of_reflection(document: Document) -> Iterator[Passage]:
    found = codec.reflection_from(document)
    yield from _passages("reflection", found.id, found.home, found.content, of=found)


def _of_text(document: Document) -> Iterator[Passage]:
    text = codec.consolidation_from(document)
    yield from _passages("consolidation", text.id, text.home, text.consolidated_content)


def _of_policy(document: Document) -> Iterator[Passage]:
    policy = codec.policy_from(document)
    if policy is not None:
        texts = (policy.memory_instructions, policy.consolidation_instructions)
        yield from _passages("policy", policy.id, policy.home, *texts)


def _of_history(document: Document) -> Iterator[Passage]:
    entry = history_from(document).entry
    texts, snapshot = [entry.content], None
    if entry.snapshot is not None:
        snapshot = msgspec.to_builtins(entry.snapshot)
        texts += list_texts(snapshot)
    text = "\n".join(texts)
    if text and text != FORGOTTEN:
        yield _build_passage("history", entry, text, snapshot)


def _of_audit(document: Document) -> Iterator[Passage]:
    entry = audit_from(document)
    text = "\n".join((*list_texts(entry.before, entry.after), entry.reason)).strip()
    if text:
        yield _build_passage("audit", entry, text, entry.before, entry.after)


def _build_passage(place: str, entry: Any, text: str, *documents: dict[str, Any] | None) -> Passage:
    session_id, sources = origin_in(*documents)
    return Passage(
        place=place,
        id=entry.id,
        target_type=entry.target_type,
        target_id=entry.target_id,
        text=text,
        scope=entry.scope,
        session_id=session_id,
        source_message_ids=sources,
    )


def _of_formation(document: Document) -> Iterator[Passage]:
    formation = formation_from(document)
    text = wording_of(formation.decisions, formation.error, formation.changes)
    yield from _passages("formation", formation.id, None, text)


def _of_session(document: Document) -> Iterator[Passage]:
    cached = [sub_document(document.get("memory_context")).get(CONTEXT_FIELDS[0])]
    for kept in sub_document(document.get("edenmem_contexts")).values():
        cached.append(sub_document(kept).get("xml"))
    session_id = str(document["_id"])
    for xml in cached:
        if isinstance(xml, str) and xml:
            yield Passage(
                place="context",
                id=session_id,
                target_type="session",
                target_id=session_id,
                text=xml,
            )
