"""Steps of a formation that is named by its ID, as engine code takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from edenmem.engine.formation.claims import step
from edenmem.engine.formation.recheck import apply_recorded
from edenmem.memory import formations as steps
from edenmem.models.changes import ChangeResult
from edenmem.models.formation import Formation
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, change_set


class Steps:
    """Takes steps; each returns the next state, or None if the step is not possible."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _take(self, rule: Any, formation_id: str, **values: Any) -> Formation | None:
        formations = self._store.formations
        known = formations.formation(formation_id)
        return known and step(formations, known, rule, **values)

    def claim(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.claim, formation_id, **values)

    def renew(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.renew, formation_id, **values)

    def narrow(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.narrow, formation_id, **values)

    def record(self, formation_id: str, **values: Any) -> Formation | None:
        """Record an outcome: by default of "worker-1" at `NOW`, and without anything in it."""
        outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}}
        defaults = {"worker": "worker-1", "changes": change_set(), "now": NOW, **outcome}
        return self._take(steps.record, formation_id, **{**defaults, **values})

    def release(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.release, formation_id, **values)

    def fail(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.fail, formation_id, **values)

    def retry(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.retry, formation_id, **values)

    def supersede(self, formation_id: str, **values: Any) -> Formation | None:
        return self._take(steps.supersede, formation_id, **values)

    def apply(
        self, formation_id: str, *, now: datetime, worker: str | None = None
    ) -> list[ChangeResult]:
        """Apply what was recorded, without another check."""
        known = self._store.formations.formation(formation_id)
        assert known is not None
        return apply_recorded(self._store, known, now=now, worker=worker, is_checked=True)[1]
