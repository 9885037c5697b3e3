"""Access to the server: tokens, and what was used in a day."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from edenmem.models.ids import derived_id


def token_id(name: str) -> str:
    """The id of the token with this name; names differ in more than the case of letters."""
    return derived_id("token", name.casefold())


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token for the server, without its secret.

    ``id`` is that of the name (see `token_id`), ``digest`` the SHA-256 of the whole token.
    ``agents`` are the ids of the agents whose memory it opens, ``user_id`` the one user whose
    memory it opens beside theirs (None: of each request's user). ``last_used_at`` is exact to an
    hour.
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
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now

    def agents_without(self, agent_id: str | None, users: Collection[str]) -> tuple[str, ...]:
        """The agents that are left when one agent (None: every agent) forgets these users; with no
        users when the agent itself is forgotten."""
        if users and self.user_id not in users:
            return self.agents
        return tuple(each for each in self.agents if agent_id not in (None, each))


class DailyUse(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in one day (UTC): tokens of models, and their price."""

    tokens: int = 0
    cost: float = 0.0
