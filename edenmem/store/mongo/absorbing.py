"""Completing a consolidation that was cut off between its text and its reflections' flags.

The text, the buffer and the list of absorbed reflections change in one atomic write, which also
leaves the mark ``absorbing``. The flags on the reflections follow from that list, so whoever meets
the mark sets them and takes it away; doing so twice changes nothing.
"""

from __future__ import annotations

from edenmem.models.ids import utc_now
from edenmem.store.mongo import codec
from edenmem.store.mongo.collection import Document
from edenmem.store.mongo.connection import Connected
from edenmem.store.mongo.filters import IN_LIMIT
from edenmem.store.protocol import batched

#: The field that is set while the flags are not known to agree.
MARK = "absorbing"


class AbsorbingPart(Connected):
    """Sets the flags that a consolidated document asks for."""

    def _finish_absorbing(self, document: Document) -> None:
        if not document.get(MARK):
            return
        at = codec.moment(document.get("last_consolidated_at")) or utc_now()
        absorbed = document.get("absorbed_ids")
        for part in batched(absorbed if isinstance(absorbed, list) else (), IN_LIMIT):
            self._reflections.update_many(
                {"_id": {"$in": part}, "absorbed": {"$ne": True}},
                {
                    "$set": {
                        "absorbed": True,
                        "absorbed_at": at,
                        "consolidated_into": document["_id"],
                        "updatedAt": utc_now(),
                    }
                },
            )
        # A later consolidation may have left a mark of its own meanwhile: it is another value.
        self._consolidated.update_one(
            {"_id": document["_id"], MARK: document[MARK]}, {"$unset": {MARK: ""}}
        )
