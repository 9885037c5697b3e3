"""What there is of the targets of some entries, read in a handful of round trips."""

from __future__ import annotations

from collections.abc import Sequence

from edenmem.models.changes import AuditEntry
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store


class Now:
    """Facts and reflections that entries tell of, as they are."""

    def __init__(self, store: Store, entries: Sequence[AuditEntry]) -> None:
        facts = [entry for entry in entries if entry.target_type == "fact" and entry.scope]
        homes = list(dict.fromkeys(entry.scope for entry in facts if entry.scope is not None))
        self._facts = store.facts_by_ids(homes, [e.target_id for e in facts]) if facts else {}
        ids = [entry.target_id for entry in entries if entry.target_type == "reflection"]
        self._reflections = store.reflections_by_ids(ids) if ids else {}

    def fact(self, fact_id: str, home: Scope) -> Fact | None:
        """The fact, if it is in the scope."""
        found = self._facts.get(fact_id)
        return found if found is not None and found.home == home else None

    def reflection(self, reflection_id: str, home: Scope) -> Reflection | None:
        """The reflection, if it is in the scope."""
        found = self._reflections.get(reflection_id)
        return found if found is not None and found.home == home else None
