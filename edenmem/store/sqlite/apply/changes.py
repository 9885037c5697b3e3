"""Changes to memory: each judged and applied inside one transaction; see `judging`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cached_property
from typing import Any

from edenmem.models.changes import Change, ChangeResult, ChangeSet, ChangeStatus
from edenmem.store.sqlite.apply.account_changes import AccountChanges
from edenmem.store.sqlite.apply.judging import result
from edenmem.store.sqlite.apply.setting_changes import SettingChanges
from edenmem.store.sqlite.apply.text_changes import TextChanges
from edenmem.store.sqlite.erase.forgettings import Blocked
from edenmem.store.sqlite.memory import log


def apply_changes(connection: sqlite3.Connection, changes: ChangeSet) -> list[ChangeResult]:
    """Apply a set inside the caller's transaction."""
    applier = _Applier(connection, changes)
    return [applier.apply(change) for change in changes.changes]


class _Applier(SettingChanges, TextChanges, AccountChanges):
    """All kinds of changes: the method for each is named after its tag."""

    @cached_property
    def _blocked(self) -> Blocked:
        return Blocked(self._db, self._set.changes, self._now)

    def apply(self, change: Change) -> ChangeResult:
        """Judge one change, and apply it if nothing speaks against it."""
        done = self._db.execute(
            "SELECT target_id, action FROM audit WHERE id = ?", (change.id,)
        ).fetchone()
        if done is not None:
            target_id, action = done
            status = ChangeStatus.DUPLICATE if action == log.VOID else ChangeStatus.ALREADY
            return result(change, status, target_id)
        if self._blocked.has(change):
            return result(change, ChangeStatus.CONFLICT, "", "whose it is was forgotten meanwhile")
        handler: Callable[[Any], ChangeResult] = getattr(self, f"_{change.__struct_config__.tag}")
        return handler(change)
