"""Domain objects for tests: valid by default, any field by keyword."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from edenmem.models.changes import Actor, Change, ChangeSet
from edenmem.models.formation import Formation, FormationStatus, Trigger
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Policy, Reflection, content_hash
from edenmem.models.scope import Scope

#: The time at which tests happen unless they say otherwise: a Saturday noon.
NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)

ACTOR = Actor(name="tester", host="test-host", command="test")


class FixedClock:
    """A clock that stands still until it is moved: pass it as ``clock``, call it for the time."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **delta: float) -> datetime:
        """Move on by ``timedelta(**delta)``; the new time."""
        self.now += timedelta(**delta)
        return self.now


def ago(**delta: float) -> datetime:
    """`NOW` less ``timedelta(**delta)``."""
    return NOW - timedelta(**delta)


def make_actor(command: str = "test", *, run_id: str | None = None) -> Actor:
    """An actor of the given command."""
    return Actor(name=ACTOR.name, host=ACTOR.host, command=command, run_id=run_id)


def make_agent(username: str = "", **fields: Any) -> Agent:
    """An agent with a username of its own and its memory on."""
    agent_id = fields.pop("id", None) or new_id()
    defaults = {"user_memory_enabled": True, "agent_memory_enabled": True, "owner": new_id()}
    return Agent(id=agent_id, username=username or f"agent-{agent_id}", **{**defaults, **fields})


def make_user(username: str = "", **fields: Any) -> User:
    """A user with a username of its own."""
    user_id = fields.pop("id", None) or new_id()
    return User(id=user_id, username=username or f"user-{user_id}", **fields)


def make_session(
    agents: Sequence[Agent | str] = (), users: Sequence[User | str] = (), **fields: Any
) -> Session:
    """A session of these agents (a new one if none is given) and users."""
    agent_ids = tuple(a if isinstance(a, str) else a.id for a in agents) or (new_id(),)
    user_ids = tuple(u if isinstance(u, str) else u.id for u in users)
    defaults: dict[str, Any] = {
        "id": new_id(),
        "owner": user_ids[0] if user_ids else new_id(),
        "last_activity": NOW,
        "created_at": NOW,
    }
    return Session(agents=agent_ids, users=user_ids, **{**defaults, **fields})


def make_message(session: Session | str, content: str = "Hello there.", **fields: Any) -> Message:
    """One message of a session, by a user, at `NOW`."""
    session_id = session if isinstance(session, str) else session.id
    defaults: dict[str, Any] = {"id": new_id(), "role": "user", "created_at": NOW}
    return Message(session_id=session_id, content=content, **{**defaults, **fields})


def make_messages(
    session: Session | str,
    contents: Sequence[str] | int,
    *,
    start: datetime = NOW,
    step: timedelta = timedelta(seconds=30),
    sender: str | None = None,
    name: str | None = None,
) -> list[Message]:
    """Messages one ``step`` apart, by the user and the assistant in turn.

    ``contents`` may be a number of messages to invent.
    """
    if isinstance(contents, int):
        contents = [f"Message number {number}." for number in range(contents)]
    return [
        make_message(
            session,
            content,
            role="user" if place % 2 == 0 else "assistant",
            created_at=start + place * step,
            sender=sender if place % 2 == 0 else None,
            name=name if place % 2 == 0 else None,
        )
        for place, content in enumerate(contents)
    ]


def make_fact(scope: Scope, content: str = "Anna lives in Lisbon.", **fields: Any) -> Fact:
    """A fact of ``scope``, formed at `NOW`."""
    defaults: dict[str, Any] = {
        "id": new_id(),
        "formed_at": NOW,
        "hash": content_hash(content),
        **scope.fields(),
    }
    return Fact(content=content, **{**defaults, **fields})


def make_reflection(
    scope: Scope, content: str = "Anna likes short answers.", **fields: Any
) -> Reflection:
    """A pending reflection of ``scope``, formed at `NOW`."""
    defaults: dict[str, Any] = {"id": new_id(), "formed_at": NOW, **scope.fields()}
    return Reflection(content=content, **{**defaults, **fields})


def make_policy(scope: Scope, **fields: Any) -> Policy:
    """The policy of ``scope`` with all its defaults."""
    defaults: dict[str, Any] = {"id": new_id(), **scope.fields()}
    return Policy(**{**defaults, **fields})


def make_formation(
    session: Session,
    messages: Sequence[Message],
    *,
    agent_id: str | None = None,
    seq: int = 1,
    worker: str = "worker-1",
    now: datetime = NOW,
    lease: timedelta = timedelta(minutes=5),
    **fields: Any,
) -> Formation:
    """The claim of ``messages`` by ``worker`` for the session's first (or the named) agent."""
    defaults: dict[str, Any] = {
        "id": new_id(),
        "status": FormationStatus.CLAIMED,
        "trigger": Trigger.FORCED,
        "last_message_at": messages[-1].created_at,
        "lease_until": now + lease,
        "created_at": now,
        "updated_at": now,
    }
    return Formation(
        session_id=session.id,
        agent_id=agent_id or session.agents[0],
        seq=seq,
        message_ids=tuple(message.id for message in messages),
        worker=worker,
        **{**defaults, **fields},
    )


def change_set(*changes: Change, at: datetime = NOW, actor: Actor = ACTOR) -> ChangeSet:
    """The changes as one set."""
    return ChangeSet(actor=actor, at=at, changes=changes)
