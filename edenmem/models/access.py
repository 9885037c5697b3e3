"""Access to the server: tokens and daily usage."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from edenmem.models.ids import derived_id


def token_id(name: str) -> str:
    """Return the ID of the token with this name, ignoring case."""
    return derived_id("token", name.casefold())


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token for the server, without its secret.

    ``id`` is derived from the name (see `token_id`), ``digest`` is the SHA-256 of the token. The
    token opens the memory of ``agents`` (IDs) and of ``user_id`` (None: of the user of each
    request). ``last_used_at`` is accurate to an hour.
    """

    id: str
    name: str
    digest: str
    agents: tuple[str, ...]
    created_at: datetime
    created_by: str
    user_id: str | None = None
    can_write: bool = False
    expires_at: datetime | None = None
    last_used_at: datetime | None = None

    def has_expired(self, now: datetime) -> bool:
        """Check whether the token has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def agents_without(self, agent_id: str | None, users: Collection[str]) -> tuple[str, ...]:
        """Return the remaining agents after one agent (None: all) forgets these users.

        Without users, the agent itself is forgotten.
        """
        if users and self.user_id not in users:
            return self.agents
        return tuple(each for each in self.agents if agent_id not in (None, each))


class DailyUse(msgspec.Struct, frozen=True, kw_only=True):
    """Model tokens and their cost in one day (UTC)."""

    tokens: int = 0
    cost: float = 0.0
