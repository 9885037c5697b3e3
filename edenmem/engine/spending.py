"""Keeping account of what models cost outside of formations, which keep their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edenmem.engine.offload import in_thread
from edenmem.models.formation import CallUsage, UsageEntry
from edenmem.models.ids import new_id
from edenmem.store.protocol.store import Store


async def keep_usage(
    store: Store, agent_id: str, work: str, calls: Sequence[CallUsage], *, at: datetime
) -> None:
    """Write down the calls of one piece of work; nothing if there were none.

    Raises:
        StoreError: the database cannot be used.
    """
    if calls:
        entry = UsageEntry(id=new_id(at), at=at, agent_id=agent_id, work=work, calls=tuple(calls))
        await in_thread(store.add_usage, entry)
