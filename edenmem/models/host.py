"""Agents, users, sessions and messages of the host."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.models.ids import derived_id


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with its memory switches. Unset switches are off, as on the platform."""

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
        """Return the display name."""
        return self.name or self.username


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user account. One person may have several, linked by ``eden_user_id``.

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
        """Return the canonical ID of the person, shared by all their accounts."""
        return self.eden_user_id or self.id

    @property
    def is_premium(self) -> bool:
        """Check whether the user's agents get premium models."""
        return self.subscription_tier >= 1 or "preview" in self.feature_flags


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """All accounts of one person; see `edenmem.engine.scopes.references`.

    ``id`` is the canonical ID, usually of an account; memory may exist under it without an
    account. ``accounts`` are the accounts that are not deleted, ``ids`` the owners of the person's
    user scopes. Both start with the canonical one.
    """

    id: str
    accounts: tuple[User, ...] = ()
    ids: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Map account IDs to usernames; accounts with the same username map to their ID."""
        usernames = [account.username for account in self.accounts]
        return {
            account.id: account.username if usernames.count(account.username) == 1 else account.id
            for account in self.accounts
        }


#: The status of sessions stored by edenmem: known to the platform, and ignored by its cold run.
STORED = "finished"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of ``users`` with one or more ``agents``.

    ``users`` are account IDs. ``name`` is the key of ``import`` or the host. ``imported``
    marks a session stored by edenmem; its status prevents the platform from forming it (`STORED`).
    ``parent`` is the session that this one branched from.
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
        """Return the name or title, else the ID."""
        return self.name or self.title or self.id


Role = Literal["user", "assistant", "system", "tool", "eden"]


#: The only key of a wrapper around an object with keys that start with ``$``.
DOCUMENT = "$document"

#: Valid statuses of a tool call on the platform.
CALL_STATUS = frozenset({"pending", "running", "completed", "failed", "cancelled"})


def literal_object(value: dict[str, Any]) -> dict[str, Any]:
    """Wrap an object that looks like MongoDB Extended JSON."""
    return {DOCUMENT: value} if any(key.startswith("$") for key in value) else value


def literal(value: Any) -> Any:
    """Wrap all objects in plain JSON that look like MongoDB Extended JSON."""
    if isinstance(value, list):
        return [literal(item) for item in value]
    if isinstance(value, dict):
        return literal_object({key: literal(item) for key, item in value.items()})
    return value


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool.

    ``args`` and ``result`` are JSON; other types are MongoDB Extended JSON, and objects that only
    look like it are wrapped (`literal_object`). ``other`` holds further fields of the platform.
    """

    tool: str
    args: Any = None
    status: str | None = None
    result: Any = None
    id: str = ""
    other: dict[str, Any] = {}

    def loadable(self, message_id: str, place: int) -> ToolCall:
        """Convert the call to the platform's model, with a derived ID if it has none."""
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
    """Check for a JSON object that is not Extended JSON for a different type."""
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
    """Return the owner of a session, else its first user, else the owner of its agent."""
    owners = (agent.owner for agent in agents if agent.owner)
    return session.owner or next(iter(session.users), None) or next(owners, None)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. Messages of a session are sorted by ``createdAt``, then ``id``.

    ``trigger`` marks messages of the platform, which are ignored.
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

    @property
    def author(self) -> str:
        """Return the account of the person who wrote the message; "" if no person did."""
        return self.sender or "" if self.role == "user" and not self.trigger else ""

    @property
    def is_readable(self) -> bool:
        """Return whether memory is formed from the message: text of a speaker or a tool.

        The platform's own messages (triggers, the roles ``system`` and ``eden``) are not readable.
        """
        if self.trigger or self.role in ("system", "eden"):
            return False
        return bool(self.content.strip() or self.tool_calls)


class CachedContext(msgspec.Struct, frozen=True, kw_only=True):
    """A cached context, with a fingerprint of its scopes and revisions.

    ``shown`` is the encoded list of its items (see `edenmem.models.told.pack`).
    """

    xml: str
    fingerprint: str
    built_at: datetime
    shown: bytes = b""
