"""Protocol for access tokens of the server and their daily usage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.access import AccessToken, DailyUse
from edenmem.models.records import AuditEntry


class Tokens(Protocol):
    """Access tokens of the server. Only digests of secrets are stored."""

    def add(self, token: AccessToken, entry: AuditEntry) -> bool:
        """Store a new token and its audit entry; return False if the name is taken."""

    def tokens(self) -> list[AccessToken]:
        """Return all tokens, ordered by name."""

    def token(self, token_id: str) -> AccessToken | None:
        """Return the token with this ID."""

    def set_agents(self, token_id: str, agents: Sequence[str]) -> None:
        """Restrict a token to these agents."""

    def set_digest(self, token: AccessToken, digest: str, entry: AuditEntry) -> bool:
        """Replace the digest of a token by the one given, with its audit entry, in one change.

        Args:
            token: The token with its new digest, creation and creator; its limits stay as stored.
            digest: The digest to replace.
            entry: The audit entry.

        Returns:
            Whether the token still had that digest.
        """

    def remove(self, token_id: str, entry: AuditEntry) -> bool:
        """Remove a token and free its name; return False if there is no such token."""

    def note_use(self, token_id: str, at: datetime) -> None:
        """Record when a token was last used."""

    def add_use(self, holder: str, day: str, use: DailyUse) -> None:
        """Add to the usage of ``holder`` on a day (ISO 8601).

        Counts older than the previous day are dropped.
        """

    def daily_use(self, holder: str, day: str) -> DailyUse:
        """Return the usage of ``holder`` on a day (ISO 8601)."""
