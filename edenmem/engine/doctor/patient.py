"""What every examination has at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from edenmem.engine.doctor.known import Known
from edenmem.engine.doctor.providers import Providers
from edenmem.models.integrity import Finding
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, StoreInfo

#: How far clocks of hosts may be apart before a time counts as one to come.
CLOCKS = timedelta(minutes=5)

#: Records that are looked at together.
BATCH = 500

Owned = Fact | Reflection | Consolidation | Policy


@dataclass(kw_only=True)
class Patient:
    """A store and its surroundings. ``files`` are those of the configuration; ``tell`` is called
    with what is being looked at, and how many of it so far."""

    store: Store
    settings: Settings
    providers: Providers
    now: datetime
    agent_id: str | None = None
    files: tuple[Path, ...] = ()
    tell: Callable[[str, int], None] = lambda what, count: None
    info: StoreInfo | None = None
    known: Known = field(init=False)

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Ask anew who and what there is."""
        self.known = Known(self.store)


def about(
    item: Owned, detail: str, *, target_type: str = "", related: tuple[str, ...] = ()
) -> Finding:
    """A finding about a memory."""
    text = item.consolidated_content if isinstance(item, Consolidation) else ""
    if isinstance(item, Fact | Reflection):
        text = item.content
    return Finding(
        target_type=target_type or type(item).__name__.lower(),
        target_id=item.id,
        detail=detail,
        agent_id=item.agent_id,
        scope=item.home,
        text=text,
        related=related,
    )
