"""A scope: whose memory something is."""

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


#: Which field names the owner, beside ``agent_id``, for each kind.
OWNER_FIELD = {
    ScopeKind.AGENT: None,
    ScopeKind.SHARD: "shard",
    ScopeKind.GROUP: "group_id",
    ScopeKind.USER: "user_id",
    ScopeKind.SESSION: "session_id",
}


class Scope(msgspec.Struct, frozen=True, order=True):
    """One scope of one agent: a kind, the agent, and the one owner that the kind needs.

    ``owner`` is the id of a user's account, a session's id, a group's id or a shard's name, and is
    empty for the agent's own scope. A missing id is an error here, so that no filter built from a
    scope can be wider than the scope.

    Raises:
        ScopeError: an id is missing, or there is one that the kind does not have.
    """

    kind: ScopeKind
    agent_id: str
    owner: str = ""

    def __post_init__(self) -> None:
        if not self.agent_id:
            raise ScopeError(f"a {self.kind} scope needs an agent")
        field = OWNER_FIELD[self.kind]
        if field is None and self.owner:
            raise ScopeError("the agent's own scope has no other owner")
        if field is not None and not self.owner:
            raise ScopeError(f"a {self.kind} scope needs a {field.removesuffix('_id')}")

    @classmethod
    def agent(cls, agent_id: str) -> Scope:
        """What the agent knows for everybody who talks to it."""
        return cls(ScopeKind.AGENT, agent_id)

    @classmethod
    def shard(cls, agent_id: str, shard: str) -> Scope:
        """A named part of the agent's memory with its own instructions."""
        return cls(ScopeKind.SHARD, agent_id, shard)

    @classmethod
    def group(cls, agent_id: str, group_id: str) -> Scope:
        """A team or community with this agent."""
        return cls(ScopeKind.GROUP, agent_id, group_id)

    @classmethod
    def user(cls, agent_id: str, user_id: str) -> Scope:
        """One account of a user with this agent."""
        return cls(ScopeKind.USER, agent_id, user_id)

    @classmethod
    def session(cls, agent_id: str, session_id: str) -> Scope:
        """One conversation with this agent."""
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
        """The scope that a stored document's fields name; ids that its kind does not use are left
        out (a fact's ``session_id`` is its source, not its owner).

        Raises:
            ScopeError: the id that the kind needs is missing.
        """
        field = OWNER_FIELD[kind]
        ids = {"user_id": user_id, "session_id": session_id, "group_id": group_id, "shard": shard}
        return cls(kind, agent_id, (ids[field] or "") if field else "")

    def fields(self, *, session_id: str | None = None) -> dict[str, Any]:
        """The fields by which a document belongs to the scope; `from_fields` reads them.

        Args:
            session_id: The session that the document comes from, where none is its owner.
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
        """The user, for a user scope."""
        return self._owner_if(ScopeKind.USER)

    @property
    def session_id(self) -> str | None:
        """The session, for a session scope."""
        return self._owner_if(ScopeKind.SESSION)

    @property
    def group_id(self) -> str | None:
        """The group, for a group scope."""
        return self._owner_if(ScopeKind.GROUP)

    @property
    def shard_name(self) -> str | None:
        """The shard's name, for a shard scope."""
        return self._owner_if(ScopeKind.SHARD)

    @property
    def key(self) -> str:
        """A text that identifies the scope: ``kind:agent_id[:owner]``."""
        return f"{self.kind}:{self.agent_id}" + (f":{self.owner}" if self.owner else "")
