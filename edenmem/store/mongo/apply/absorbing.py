"""Completing a consolidation, or its reverting, that was cut off between text and flags.

The text, the buffer and the list of absorbed reflections change in one atomic write, which also
leaves a mark: ``absorbing`` says that the flags of the absorbed reflections are to be set,
``releasing`` names those that wait again. The flags on the reflections follow from that, so whoever
meets a mark sets them and takes it away; doing so twice changes nothing. Each flag is kept with the
version of the text that it follows from, so that one who was slow cannot set it for an older one.
"""

from __future__ import annotations

from typing import Any

from edenmem.models.ids import utc_now
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connected
from edenmem.store.mongo.core.filters import IN_LIMIT
from edenmem.store.protocol.store import batched

#: The fields that are set while the flags are not known to agree; never both.
MARK = "absorbing"
RELEASING = "releasing"
#: On a reflection: the version of the text that its flag follows from.
_FOLLOWS = "text_version"


class AbsorbingPart(Connected):
    """Sets the flags that a consolidated document asks for."""

    def _finish_absorbing(self, document: Document) -> None:
        if document.get(MARK):
            at = codec.moment(document.get("last_consolidated_at")) or utc_now()
            absorbed = {
                "absorbed": True,
                "absorbed_at": at,
                "consolidated_into": document["_id"],
            }
            self._set_flags(document, document.get("absorbed_ids"), {"$ne": True}, absorbed)
            self._unmark(document, MARK)
        if released := document.get(RELEASING):
            waiting = {"absorbed": False, "absorbed_at": None, "consolidated_into": None}
            self._set_flags(document, released, True, waiting)
            self._unmark(document, RELEASING)

    def _set_flags(self, document: Document, ids: Any, now: Any, fields: Document) -> None:
        version = codec.number(document.get("version"))
        for part in batched(ids if isinstance(ids, list) else (), IN_LIMIT):
            self._reflections.update_many(
                {
                    "_id": {"$in": part},
                    "absorbed": now,
                    _FOLLOWS: {"$not": {"$gte": version}},
                },
                {"$set": {**fields, _FOLLOWS: version, "updatedAt": utc_now()}},
            )

    def _unmark(self, document: Document, mark: str) -> None:
        # A later version may have left a mark of its own meanwhile: it is another value.
        self._consolidated.update_one(
            {"_id": document["_id"], mark: document[mark]}, {"$unset": {mark: ""}}
        )
