"""Who may use the server, and how much was used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.access import AccessToken, DailyUse
from edenmem.models.records import AuditEntry


class Tokens(Protocol):
    """Tokens for the server. No secret is stored, only its digest."""

    def add(self, token: AccessToken, entry: AuditEntry) -> bool:
        """Store a new token, with its audit entry; False if the name is taken."""

    def tokens(self) -> list[AccessToken]:
        """All tokens, by name."""

    def token(self, token_id: str) -> AccessToken | None:
        """One token by its id."""

    def set_agents(self, token_id: str, agents: Sequence[str]) -> None:
        """Limit a token to these agents."""

    def remove(self, token_id: str, entry: AuditEntry) -> bool:
        """Remove a token, with an audit entry; False if there is none. Its name is free again."""

    def note_use(self, token_id: str, at: datetime) -> None:
        """Write when a token was last used."""

    def add_use(self, holder: str, day: str, use: DailyUse) -> None:
        """Add to what ``holder`` used on this day (ISO 8601). Counts of days before the previous
        one are dropped."""

    def daily_use(self, holder: str, day: str) -> DailyUse:
        """What ``holder`` used on this day."""
