"""A backup that is older than a forgetting does not bring back what was forgotten since."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from edenmem.models.backup import Record, StoredSession, StoredUser
from edenmem.models.forgetting import block
from edenmem.models.ids import as_utc
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store


class Forgotten:
    """What may not be brought back by a file.

    Args:
        store: Where the forgettings are.
        header: The header of the file; one without is of this moment, which only a forgetting that
            is still open keeps out.
    """

    def __init__(self, store: Store, header: dict[str, Any]) -> None:
        made = _time_of(header)
        self._blocks = {
            key: forgetting.closed_at
            for forgetting in store.forgettings()
            if forgetting.closed_at is None or (made is not None and made <= forgetting.closed_at)
            for key in forgetting.blocks
        }

    def why(self, record: Record) -> str:
        """Why a record is not to be taken; empty if it is."""
        if not self._blocks:
            return ""
        for key in _keys(record):
            if key in self._blocks:
                at = self._blocks[key]
                if at is None:
                    return "whose it is is being forgotten"
                return f"whose it is was forgotten on {at:%Y-%m-%d}, after the file was written"
        return ""


def _keys(record: Record) -> Iterator[str]:
    scope = getattr(record, "scope", None)
    home = scope if isinstance(scope, Scope) else getattr(record, "home", None)
    if home is not None:
        yield block("scope", home.key)
    session_id = getattr(record, "session_id", None)
    if isinstance(record, StoredSession):
        session_id = record.id
    if session_id:
        yield block("session", session_id)
    for parent in getattr(record, "propagated_from", ()):
        yield block("reflection", parent)
    account = record.id if isinstance(record, StoredUser) else getattr(record, "sender", None)
    if account:
        yield block("called", account.casefold())


def _time_of(header: dict[str, Any]) -> datetime | None:
    """When a file was written; one that does not say it may be of any time."""
    if not header:
        return None
    try:
        return as_utc(msgspec.convert(header.get("created_at"), datetime))
    except (msgspec.ValidationError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
