"""Cache contexts on sessions."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterator

from edenmem.models.forgetting import Passage
from edenmem.models.host import CachedContext
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import object_id
from edenmem.store.mongo.host.host import set_in_context
from edenmem.store.mongo.host.host_codec import sub_document

#: The platform's two fields, and edenmem's next to them.
_XML = "cached_memory_context"
_TIME = "memory_context_timestamp"
_FINGERPRINT = "edenmem_fingerprint"

#: Contexts that the platform must not serve to the next account or agent, by agent ID.
_OURS = "edenmem_contexts"
#: The fields of ``memory_context`` with a cached context and its origin.
CONTEXT_FIELDS = (_XML, _TIME, _FINGERPRINT)


class MongoContexts:
    """Implements `edenmem.store.protocol.host.Contexts`, in the platform's fields if allowed."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        document = self._db.sessions.find_one(
            {"_id": object_id(session_id)}, {"agents": 1, "memory_context": 1, _OURS: 1}
        )
        if document is None:
            return None
        kept = sub_document(sub_document(document.get(_OURS)).get(agent_id))
        ours = _context(kept.get("xml"), kept.get("fingerprint"), kept)
        if codec.text_ids(document.get("agents"))[:1] != (agent_id,):
            return ours
        theirs = _from_platform(sub_document(document.get("memory_context")))
        if ours is None or (theirs is not None and theirs.built_at >= ours.built_at):
            return theirs
        return ours

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        key = {"_id": object_id(session_id)}
        document = self._db.sessions.find_one(key, {"agents": 1})
        if document is None:
            return
        if shared and codec.text_ids(document.get("agents")) == (agent_id,):
            fields = {
                _XML: context.xml,
                _TIME: context.built_at,
                _FINGERPRINT: {
                    "value": context.fingerprint,
                    "at": context.built_at,
                    "shown": context.shown,
                },
            }
            set_in_context(self._db, session_id, "$set", fields)
            return
        kept = {
            "xml": context.xml,
            "fingerprint": context.fingerprint,
            "at": context.built_at,
            "shown": context.shown,
        }
        self._db.sessions.update_one(key, {"$set": {f"{_OURS}.{agent_id}": kept}})

    def cached_texts(self) -> Iterator[Passage]:
        seen = {"memory_context": 1, _OURS: 1}
        for document, _ in self._db.sessions.walk_by_id({}, seen):
            cached = [sub_document(document.get("memory_context")).get(_XML)]
            for kept in sub_document(document.get(_OURS)).values():
                cached.append(sub_document(kept).get("xml"))
            session_id = str(document["_id"])
            for xml in cached:
                if isinstance(xml, str) and xml:
                    yield Passage(
                        kind="context",
                        id=session_id,
                        target_type="session",
                        target_id=session_id,
                        text=xml,
                    )


def _from_platform(fields: Document) -> CachedContext | None:
    """Return the context in the platform's fields, unless the platform has rewritten it.

    In that case the fingerprint belongs to another text, and the times differ.
    """
    ours = sub_document(fields.get(_FINGERPRINT))
    built_at = codec.moment(fields.get(_TIME))
    if built_at is None or codec.moment(ours.get("at")) != built_at:
        return None
    return _context(fields.get(_XML), ours.get("value"), ours)


def _context(xml: object, fingerprint: object, kept: Document) -> CachedContext | None:
    at, shown = codec.moment(kept.get("at")), kept.get("shown")
    if not isinstance(xml, str) or not isinstance(fingerprint, str) or at is None:
        return None
    if not isinstance(shown, bytes):
        return None
    return CachedContext(xml=xml, fingerprint=fingerprint, built_at=at, shown=shown)
