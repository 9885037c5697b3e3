"""Convert the platform's agents, users, sessions and messages to models and back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import UsageError
from edenmem.models.backup import StoredUser
from edenmem.models.host import Agent, Message, Role, Session, ToolCall, User
from edenmem.models.ids import derived_id, utc_now
from edenmem.store.mongo.core.codec import (
    from_json,
    moment,
    number,
    optional_text,
    text,
    text_id,
    text_ids,
    to_json,
)
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import object_id, object_ids, optional_id

_ROLES: frozenset[str] = frozenset({"user", "assistant", "system", "tool", "eden"})
#: The values allowed by the platform's model of a session.
_STATUSES = frozenset({"active", "paused", "running", "archived", "finished"})
_PLATFORMS = frozenset({"discord", "telegram", "twitter", "farcaster", "gmail", "app"})
#: Edenmem's field for any other platform.
_PLATFORM = "edenmem_platform"
#: Marks an imported session in addition to ``extras.edenmem``, which the platform drops when it
#: rewrites a session: it keeps unknown fields of the document, but not those inside ``extras``.
IMPORTED = "edenmem_imported"
#: The fields that `session_from` reads. The platform's sessions are large.
SESSION_FIELDS = dict.fromkeys(
    (
        "agents",
        "users",
        "owner",
        "group_id",
        "name",
        "title",
        "status",
        "platform",
        _PLATFORM,
        "extras.incognito",
        "extras.edenmem.imported",
        IMPORTED,
        "parent_session",
        "deleted",
        "memory_context.last_activity",
        "createdAt",
        "updatedAt",
    ),
    1,
)
_CALL_FIELDS = frozenset({"id", "tool", "args", "status", "result"})
OWNER_HINT = "name the user who owns it: --owner USER"


def agent_from(document: Document) -> Agent:
    """Read an agent; a missing or null toggle is off, as on the platform."""
    return Agent(
        id=str(document["_id"]),
        username=text(document.get("username")),
        name=text(document.get("name")),
        persona=text(document.get("persona")),
        owner=text_id(document.get("owner")),
        user_memory_enabled=document.get("user_memory_enabled") == 1,
        agent_memory_enabled=document.get("agent_memory_enabled") == 1,
        created_at=moment(document.get("createdAt")),
    )


def agent_document(agent: Agent) -> Document:
    """Return a new agent's document.

    Raises:
        UsageError: the agent has no owner, so the platform could not load it.
    """
    if agent.owner is None:
        raise UsageError(f"agent has no owner: {agent.label}", hint=OWNER_HINT)
    return _stamp(
        {
            "_id": object_id(agent.id),
            "type": "agent",
            "username": agent.username,
            "name": agent.name,
            "persona": agent.persona,
            "owner": optional_id(agent.owner),
            "user_memory_enabled": agent.user_memory_enabled,
            "agent_memory_enabled": agent.agent_memory_enabled,
            "deleted": False,
        },
        agent.created_at,
    )


def user_from(document: Document) -> User:
    """Read a user's account."""
    flags = document.get("featureFlags")
    return User(
        id=str(document["_id"]),
        username=text(document.get("username")),
        eden_user_id=text_id(document.get("eden_user_id")),
        subscription_tier=number(document.get("subscriptionTier")),
        feature_flags=tuple(str(flag) for flag in flags) if isinstance(flags, list) else (),
        created_at=moment(document.get("createdAt")),
    )


def stored_user_from(document: Document) -> StoredUser:
    """Read a user's account with its deletion mark."""
    fields = msgspec.structs.asdict(user_from(document))
    return StoredUser(**fields, deleted=document.get("deleted") is True)


def user_document(user: User) -> Document:
    """Return a new account's document."""
    return _stamp(
        {
            "_id": object_id(user.id),
            "type": "user",
            "username": user.username,
            "eden_user_id": optional_id(user.eden_user_id),
            "subscriptionTier": user.subscription_tier,
            "featureFlags": list(user.feature_flags),
            "deleted": False,
        },
        user.created_at,
    )


def sub_document(value: Any) -> Document:
    """Return a sub-document; empty for null and other types."""
    return value if isinstance(value, dict) else {}


def session_from(document: Document) -> Session:
    """Read a session; without recorded activity, its last update counts."""
    context = sub_document(document.get("memory_context"))
    extras = sub_document(document.get("extras"))
    return Session(
        id=str(document["_id"]),
        agents=text_ids(document.get("agents")),
        users=text_ids(document.get("users")),
        owner=text_id(document.get("owner")),
        group_id=text_id(document.get("group_id")),
        name=optional_text(document.get("name")),
        title=optional_text(document.get("title")),
        status=text(document.get("status")) or "active",
        platform=optional_text(document.get("platform") or document.get(_PLATFORM)),
        incognito=bool(extras.get("incognito")),
        imported=document.get(IMPORTED) is True
        or sub_document(extras.get("edenmem")).get("imported") is True,
        parent=text_id(document.get("parent_session")),
        deleted=document.get("deleted") is True,
        last_activity=moment(context.get("last_activity"))
        or moment(document.get("updatedAt"))
        or moment(document.get("createdAt")),
        created_at=moment(document.get("createdAt")),
    )


def session_document(session: Session) -> Document:
    """Return a new session's document.

    Raises:
        UsageError: the session has no owner, so the platform could not load it.
    """
    if session.owner is None:
        raise UsageError(f"session has no owner: {session.label}", hint=OWNER_HINT)
    platform = session.platform if session.platform in _PLATFORMS else None
    document: Document = {
        "_id": object_id(session.id),
        "owner": optional_id(session.owner),
        "users": object_ids(session.users),
        "agents": object_ids(session.agents),
        "status": session.status if session.status in _STATUSES else "finished",
        "deleted": session.deleted,
        "title": session.title,
        "platform": platform,
        "extras": {
            "incognito": session.incognito,
            **({"edenmem": {"imported": True}} if session.imported else {}),
        },
        "memory_context": {},
    }
    if session.last_activity is not None:
        document["memory_context"]["last_activity"] = session.last_activity
    if platform != session.platform:
        document[_PLATFORM] = session.platform
    if session.imported:
        document[IMPORTED] = True
    if session.parent is not None:
        document["parent_session"] = optional_id(session.parent)
    if session.group_id is not None:
        document["group_id"] = session.group_id
    if session.name is not None:
        document["name"] = session.name
    return _stamp(document, session.created_at)


def message_from(document: Document, session_id: str) -> Message:
    """Read a message as part of the given session; it may be in several."""
    role = text(document.get("role"))
    calls = document.get("tool_calls")
    return Message(
        id=str(document["_id"]),
        session_id=session_id,
        role=msgspec.convert(role, Role) if role in _ROLES else "system",
        content=text(document.get("content")),
        created_at=moment(document.get("createdAt"))
        or moment(document["_id"].generation_time)
        or utc_now(),
        sender=text_id(document.get("sender")),
        name=optional_text(document.get("name")),
        tool_calls=tuple(_tool_call(call) for call in calls if isinstance(call, dict))
        if isinstance(calls, list)
        else (),
        trigger=bool(document.get("trigger")),
    )


def message_document(message: Message) -> Document:
    """Return a new message's document."""
    calls = enumerate(message.tool_calls)
    return _stamp(
        {
            "_id": object_id(message.id),
            "session": [object_id(message.session_id)],
            "sender": optional_id(message.sender),
            "role": message.role,
            "name": message.name,
            "content": message.content,
            "tool_calls": [_call_document(call, message.id, place) for place, call in calls],
            "trigger": object_id(derived_id("trigger", message.id)) if message.trigger else None,
        },
        message.created_at,
    )


def _tool_call(call: Document) -> ToolCall:
    return ToolCall(
        tool=text(call.get("tool")),
        args=to_json(call.get("args")),
        status=optional_text(call.get("status")),
        result=to_json(call.get("result")),
        id=text(call.get("id")),
        other={
            str(name): to_json(value)
            for name, value in call.items()
            if name not in _CALL_FIELDS or (value is None and name != "id")
        },
    )


def _call_document(call: ToolCall, message_id: str, place: int) -> Document:
    """Return a tool call's document; a call with an ID is in the platform's form and unchanged."""
    if not call.id:
        call = call.loadable(message_id, place)
    known = {"args": from_json(call.args), "status": call.status, "result": from_json(call.result)}
    return {
        "id": call.id,
        "tool": call.tool,
        **{name: from_json(value) for name, value in call.other.items()},
        **{name: value for name, value in known.items() if value is not None},
    }


def _stamp(document: Document, created_at: datetime | None) -> Document:
    now = utc_now()
    return {**document, "createdAt": created_at or now, "updatedAt": now}
