"""Reading what changes are judged by."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from edenmem.memory import Needs, State


class Planning(Protocol):
    """See `edenmem.memory`: a dry run is `preview` with this for its reads."""

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        """Load all that is needed to judge changes, in one snapshot if the store has them.

        Every key of ``needs`` is in the answer, with None or nothing for what is not there. ``at``
        is the time of the set: a forgetting that was closed before it blocks nothing.
        """
