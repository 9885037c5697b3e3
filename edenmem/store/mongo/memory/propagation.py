"""Track the versions of texts to propagate, in a list on the consolidated document."""

from __future__ import annotations

from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import build_consolidated_key

#: Extended by the same update that writes a version.
UNPROPAGATED = "unpropagated_versions"


class MongoPropagation:
    """Implements `edenmem.store.protocol.memory.Propagation`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def find_unpropagated(self, *, agent_id: str | None = None) -> list[Scope]:
        """See `Propagation.find_unpropagated`."""
        # There are few at any time, so the agent is filtered here.
        texts = map(
            codec.consolidation_from, self._db.consolidated.find({UNPROPAGATED: {"$gte": 1}})
        )
        return sorted(
            (text.home for text in texts if agent_id in (None, text.agent_id)),
            key=lambda scope: (scope.agent_id, scope.kind, scope.owner),
        )

    def settle_propagation(self, scope: Scope, version: int) -> None:
        """See `Propagation.settle_propagation`."""
        update = {"$pull": {UNPROPAGATED: version}, "$set": {"updatedAt": utc_now()}}
        self._db.consolidated.update_one(build_consolidated_key(scope), update)
