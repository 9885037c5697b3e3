"""Scopes, the owners of memory."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from edenmem.errors import ScopeError


class ScopeKind(StrEnum):
    """The five kinds, from broad to narrow."""

    AGENT = "agent"
    SHARD = "shard"
    GROUP = "group"
    USER = "user"
    SESSION = "session"


#: The field of the owner, besides ``agent_id``, for each kind.
OWNER_FIELD = {
    ScopeKind.AGENT: None,
    ScopeKind.SHARD: "shard",
    ScopeKind.GROUP: "group_id",
    ScopeKind.USER: "user_id",
    ScopeKind.SESSION: "session_id",
}


class Scope(msgspec.Struct, frozen=True, order=True):
    """A scope of an agent: kind, agent, and the owner that the kind requires.

    ``owner`` is the ID of an account, session or group, or the name of a shard; empty for the agent
    scope. A missing ID is an error, so that no filter is wider than its scope.

    Raises:
        ScopeError: a required ID is missing, or the kind excludes an ID.
    """

    kind: ScopeKind
    agent_id: str
    owner: str = ""

    def __post_init__(self) -> None:
        if not self.agent_id:
            raise ScopeError(f"a {self.kind} scope needs an agent")
        field = OWNER_FIELD[self.kind]
        if field is None and self.owner:
            raise ScopeError(f"an agent scope has no owner: {self.owner!r}")
        if field is not None and not self.owner:
            raise ScopeError(f"a {self.kind} scope needs a {field.removesuffix('_id')}")

    @classmethod
    def agent(cls, agent_id: str) -> Scope:
        """Return the scope of memory shared with all users."""
        return cls(ScopeKind.AGENT, agent_id)

    @classmethod
    def shard(cls, agent_id: str, shard: str) -> Scope:
        """Return the scope of a named part of the agent's memory, with separate instructions."""
        return cls(ScopeKind.SHARD, agent_id, shard)

    @classmethod
    def group(cls, agent_id: str, group_id: str) -> Scope:
        """Return the scope of a team or community."""
        return cls(ScopeKind.GROUP, agent_id, group_id)

    @classmethod
    def user(cls, agent_id: str, user_id: str) -> Scope:
        """Return the scope of one user account."""
        return cls(ScopeKind.USER, agent_id, user_id)

    @classmethod
    def session(cls, agent_id: str, session_id: str) -> Scope:
        """Return the scope of one conversation."""
        return cls(ScopeKind.SESSION, agent_id, session_id)

    @classmethod
    def from_fields(
        cls,
        kind: ScopeKind,
        agent_id: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        group_id: str | None = None,
        shard: str | None = None,
    ) -> Scope:
        """Return the scope of a stored document's fields.

        IDs that the kind does not use are ignored (a fact's ``session_id`` is its source).

        Raises:
            ScopeError: the ID that the kind requires is missing.
        """
        field = OWNER_FIELD[kind]
        ids = {"user_id": user_id, "session_id": session_id, "group_id": group_id, "shard": shard}
        return cls(kind, agent_id, (ids[field] or "") if field else "")

    def fields(self, *, session_id: str | None = None) -> dict[str, Any]:
        """Return the scope fields of a document; the inverse of `from_fields`.

        Args:
            session_id: Source session of the document, unless a session owns the scope.
        """
        return {
            "scope": self.kind,
            "agent_id": self.agent_id,
            "user_id": self.user_id,
            "group_id": self.group_id,
            "shard": self.shard_name,
            "session_id": self.session_id or session_id,
        }

    def _owner_if(self, kind: ScopeKind) -> str | None:
        return self.owner if self.kind is kind else None

    @property
    def user_id(self) -> str | None:
        """Return the user of a user scope, else None."""
        return self._owner_if(ScopeKind.USER)

    @property
    def session_id(self) -> str | None:
        """Return the session of a session scope, else None."""
        return self._owner_if(ScopeKind.SESSION)

    @property
    def group_id(self) -> str | None:
        """Return the group of a group scope, else None."""
        return self._owner_if(ScopeKind.GROUP)

    @property
    def shard_name(self) -> str | None:
        """Return the name of a shard scope, else None."""
        return self._owner_if(ScopeKind.SHARD)

    @property
    def key(self) -> str:
        """Return a unique text: ``kind:agent_id[:owner]``."""
        return f"{self.kind}:{self.agent_id}" + (f":{self.owner}" if self.owner else "")
