"""Domain objects for tests: valid by default, any field by keyword."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from edenmem.models.changes import (
    Actor,
    Change,
    ChangeSet,
    RemoveFact,
    ReviseFact,
    WriteConsolidation,
)
from edenmem.models.formation import Formation, FormationStatus, Trigger
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Held, Policy, Reflection, content_hash
from edenmem.models.scope import Scope

#: The default time of tests: a Saturday noon.
NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)

ACTOR = Actor(name="tester", host="test-host", command="test")

T = TypeVar("T")


def some(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value


class FixedClock:
    """A clock with a fixed time; pass it as ``clock``, and call it for the time."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **delta: float) -> datetime:
        """Advance by ``timedelta(**delta)``, and return the new time."""
        self.now += timedelta(**delta)
        return self.now


def ago(**delta: float) -> datetime:
    """Return `NOW` minus ``timedelta(**delta)``."""
    return NOW - timedelta(**delta)


def make_actor(command: str = "test", *, run_id: str | None = None) -> Actor:
    """Return an actor with this command."""
    return Actor(name=ACTOR.name, host=ACTOR.host, command=command, run_id=run_id)


def make_agent(username: str = "", **fields: Any) -> Agent:
    """Return an agent with a unique username and memory switched on."""
    agent_id = fields.pop("id", None) or new_id()
    defaults = {"user_memory_enabled": True, "agent_memory_enabled": True, "owner": new_id()}
    return Agent(id=agent_id, username=username or f"agent-{agent_id}", **{**defaults, **fields})


def make_user(username: str = "", **fields: Any) -> User:
    """Return a user with a unique username."""
    user_id = fields.pop("id", None) or new_id()
    return User(id=user_id, username=username or f"user-{user_id}", **fields)


def make_session(
    agents: Sequence[Agent | str] = (), users: Sequence[User | str] = (), **fields: Any
) -> Session:
    """Return a session of these agents (default: a new one) and users."""
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
    """Return a message of a user at `NOW`."""
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
    """Return messages one ``step`` apart, by user and assistant in turn.

    ``contents`` may be a number of generated messages.
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
    """Return a fact of ``scope``, formed at `NOW`."""
    defaults: dict[str, Any] = {
        "id": new_id(),
        "formed_at": NOW,
        "hash": content_hash(content, fields.get("key")),
        **scope.fields(),
    }
    return Fact(content=content, **{**defaults, **fields})


def revision(fact: Fact, content: str, **fields: Any) -> ReviseFact:
    """Return the change of a fact's text at `NOW`."""
    defaults: dict[str, Any] = {"scope": fact.home, "expected_version": fact.version, "at": NOW}
    return ReviseFact(fact_id=fact.id, content=content, **{**defaults, **fields})


def removal(fact: Fact, **fields: Any) -> RemoveFact:
    """Return the removal of a fact at `NOW`."""
    defaults: dict[str, Any] = {"scope": fact.home, "expected_version": fact.version, "at": NOW}
    return RemoveFact(fact_id=fact.id, **{**defaults, **fields})


def writing(scope: Scope, content: str, **fields: Any) -> WriteConsolidation:
    """Return the writing of a scope's text at `NOW`, by default of its first version."""
    defaults: dict[str, Any] = {"expected_version": 0, "word_limit": 300, "at": NOW}
    return WriteConsolidation(scope=scope, content=content, **{**defaults, **fields})


def make_reflection(
    scope: Scope, content: str = "Anna likes short answers.", **fields: Any
) -> Reflection:
    """Return a pending reflection of ``scope``, formed at `NOW`."""
    defaults: dict[str, Any] = {"id": new_id(), "formed_at": NOW, **scope.fields()}
    return Reflection(content=content, **{**defaults, **fields})


def make_held(scope: Scope, content: str = "Anna may live in Faro.", **fields: Any) -> Held:
    """Return an item that waits for review."""
    owner = scope.fields(session_id=fields.pop("session_id", None))
    defaults = {"id": new_id(), "kind": "fact", "held_at": NOW, "reasons": "not in the messages"}
    return Held(**owner, content=content, **{**defaults, **fields})


def make_policy(scope: Scope, **fields: Any) -> Policy:
    """Return the default policy of ``scope``."""
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
    """Return a claim of ``messages`` by ``worker``, by default for the session's first agent."""
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
    """Return the changes as one set."""
    return ChangeSet(actor=actor, at=at, changes=changes)
