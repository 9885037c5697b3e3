"""What the platform owns: agents, users, sessions and messages, as far as memory needs them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.models.ids import derived_id


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, with the switches of its scopes. A switch that is not set is off, as on the
    platform."""

    id: str
    username: str
    name: str = ""
    persona: str = ""
    owner: str | None = None
    user_memory_enabled: bool = False
    agent_memory_enabled: bool = False
    created_at: datetime | None = msgspec.field(default=None, name="createdAt")

    @property
    def label(self) -> str:
        """The name that people and models see."""
        return self.name or self.username


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person's account. One person may have several, linked by ``eden_user_id``.

    A user scope belongs to one account; `Person` has all accounts whose memory is read together.
    """

    id: str
    username: str
    eden_user_id: str | None = None
    subscription_tier: int = msgspec.field(default=0, name="subscriptionTier")
    feature_flags: tuple[str, ...] = msgspec.field(default=(), name="featureFlags")
    created_at: datetime | None = msgspec.field(default=None, name="createdAt")

    @property
    def person_id(self) -> str:
        """The canonical ID of the person, which all of their accounts share."""
        return self.eden_user_id or self.id

    @property
    def is_premium(self) -> bool:
        """Whether agents that this user owns are given the better models."""
        return self.subscription_tier >= 1 or "preview" in self.feature_flags


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """All accounts of one person; `edenmem.engine.scopes.people` finds them.

    ``id`` is the canonical ID: mostly that of an account, but memory may be stored under it
    although no such account exists. ``accounts`` are those that are not deleted. ``ids`` are the
    owners of the person's user scopes. In both the canonical one comes first.
    """

    id: str
    accounts: tuple[User, ...] = ()
    ids: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Account ID to username; an ID for each of several accounts that share a username."""
        usernames = [account.username for account in self.accounts]
        return {
            account.id: account.username if usernames.count(account.username) == 1 else account.id
            for account in self.accounts
        }


#: The status of sessions that edenmem stores: one that the platform knows, and that its cold run
#: does not take.
STORED = "finished"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of people (``users``) with one or more ``agents``.

    ``users`` holds the ids as the platform stores them (accounts).
    ``name`` is the key that ``session import`` used, if the session came that way. ``imported``
    marks a session that edenmem stored; its status keeps the platform from forming it (`STORED`).
    ``parent`` is the session that this one diverged from.
    """

    id: str
    agents: tuple[str, ...]
    users: tuple[str, ...] = ()
    owner: str | None = None
    group_id: str | None = None
    name: str | None = None
    title: str | None = None
    status: str = "active"
    platform: str | None = None
    incognito: bool = False
    deleted: bool = False
    imported: bool = False
    parent: str | None = None
    last_activity: datetime | None = None
    created_at: datetime | None = msgspec.field(default=None, name="createdAt")

    @property
    def label(self) -> str:
        """The shortest text that a person recognises it by."""
        return self.name or self.title or self.id


Role = Literal["user", "assistant", "system", "tool", "eden"]


#: The only key of a JSON object around one whose own keys begin with ``$``.
DOCUMENT = "$document"

#: What the platform lets the status of a tool call be.
CALL_STATUS = frozenset({"pending", "running", "completed", "failed", "cancelled"})


def literal_object(value: dict[str, Any]) -> dict[str, Any]:
    """Wrap an object that would read as MongoDB Extended JSON."""
    return {DOCUMENT: value} if any(key.startswith("$") for key in value) else value


def literal(value: Any) -> Any:
    """Wrap every object in plain JSON that would read as MongoDB Extended JSON."""
    if isinstance(value, list):
        return [literal(item) for item in value]
    if isinstance(value, dict):
        return literal_object({key: literal(item) for key, item in value.items()})
    return value


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool.

    ``args`` and ``result`` are JSON; what JSON has no type for is MongoDB Extended JSON, and an
    object that only looks like it is wrapped (`literal_object`). ``other`` holds the platform's
    further fields.
    """

    tool: str
    args: Any = None
    status: str | None = None
    result: Any = None
    id: str = ""
    other: dict[str, Any] = {}

    def loadable(self, message_id: str, place: int) -> ToolCall:
        """Return the call in the form that the platform's model takes, with a derived id if it
        has none."""
        status = self.status if self.status in CALL_STATUS else None
        if self.status and status is None:
            status = _STATUSES.get(self.status.casefold())
        return msgspec.structs.replace(
            self,
            id=self.id or derived_id("tool call", message_id, str(place)),
            args=_as_object(self.args),
            status=status,
            result=_as_objects(self.result),
        )


_STATUSES = {
    **dict.fromkeys(("success", "succeeded", "ok", "done"), "completed"),
    **dict.fromkeys(("error", "failure"), "failed"),
    "canceled": "cancelled",
}


def _is_object(value: Any) -> bool:
    """Whether it is a JSON object, and not Extended JSON for a value of another type."""
    if not isinstance(value, dict):
        return False
    return value.keys() == {DOCUMENT} or not any(key.startswith("$") for key in value)


def _as_object(args: Any) -> dict[str, Any]:
    if _is_object(args):
        return dict(args)
    return {} if args is None else {"arguments": args}


def _as_objects(result: Any) -> list[dict[str, Any]] | None:
    if result is None:
        return None
    items = result if isinstance(result, list) else [result]
    return [item if _is_object(item) else {"output": item} for item in items]


def owner_of(session: Session, agents: Iterable[Agent]) -> str | None:
    """Return who owns a session: its owner, else its first user, else the owner of its agent."""
    owners = (agent.owner for agent in agents if agent.owner)
    return session.owner or next(iter(session.users), None) or next(owners, None)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Order in a session: ``createdAt``, then ``id``.

    ``trigger`` is true if the platform, not a person, wrote it; such messages are not read.
    """

    id: str
    session_id: str
    role: Role
    content: str = ""
    created_at: datetime = msgspec.field(name="createdAt")
    sender: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    trigger: bool = False


class CachedContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context as it was built: for which scopes, of which revisions, and when."""

    xml: str
    fingerprint: str
    built_at: datetime
