"""Revisions of scopes, and the contexts that are kept on sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edenmem.models.host import CachedContext
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.changes import ChangesPart
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import object_id, policy_id
from edenmem.store.mongo.host.host import HostPart
from edenmem.store.mongo.host.host_codec import sub_document

#: The platform's own two fields, and ours beside them.
_XML = "cached_memory_context"
_TIME = "memory_context_timestamp"
_FINGERPRINT = "edenmem_fingerprint"
#: What the platform may not serve to the next account for the next agent: agent id → context.
_OURS = "edenmem_contexts"


class ContextsPart(ChangesPart, HostPart):
    """Caches contexts, in the platform's fields where the platform may serve them."""

    def revisions(self, scopes: Sequence[Scope]) -> dict[Scope, int]:
        """See `edenmem.store.protocol.store.Store.revisions`."""
        found = {
            document["_id"]: codec.number(document.get("revision"))
            for document in self._policy_documents(scopes)
        }
        return {scope: found.get(policy_id(scope), 0) for scope in scopes}

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        """See `edenmem.store.protocol.store.Store.find_context`."""
        document = self._sessions.find_one(
            {"_id": object_id(session_id)}, {"agents": 1, "memory_context": 1, _OURS: 1}
        )
        if document is None:
            return None
        kept = sub_document(sub_document(document.get(_OURS)).get(agent_id))
        ours = _context(kept.get("xml"), kept.get("fingerprint"), codec.moment(kept.get("at")))
        if codec.text_ids(document.get("agents"))[:1] != (agent_id,):
            return ours
        theirs = _from_platform(sub_document(document.get("memory_context")))
        if ours is None or (theirs is not None and theirs.built_at >= ours.built_at):
            return theirs
        return ours

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        """See `edenmem.store.protocol.store.Store.cache_context`."""
        key = {"_id": object_id(session_id)}
        document = self._sessions.find_one(key, {"agents": 1})
        if document is None:
            return
        if shared and codec.text_ids(document.get("agents")) == (agent_id,):
            fields = {
                _XML: context.xml,
                _TIME: context.built_at,
                _FINGERPRINT: {"value": context.fingerprint, "at": context.built_at},
            }
            self._set_in_context(session_id, "$set", fields)
            return
        kept = {"xml": context.xml, "fingerprint": context.fingerprint, "at": context.built_at}
        self._sessions.update_one(key, {"$set": {f"{_OURS}.{agent_id}": kept}})


def _from_platform(fields: Document) -> CachedContext | None:
    """The platform's fields, unless it has written them itself since: then our fingerprint is of
    another text, and the times differ."""
    ours = sub_document(fields.get(_FINGERPRINT))
    built_at = codec.moment(fields.get(_TIME))
    if built_at is None or codec.moment(ours.get("at")) != built_at:
        return None
    return _context(fields.get(_XML), ours.get("value"), built_at)


def _context(xml: object, fingerprint: object, at: datetime | None) -> CachedContext | None:
    if not isinstance(xml, str) or not isinstance(fingerprint, str) or at is None:
        return None
    return CachedContext(xml=xml, fingerprint=fingerprint, built_at=at)
