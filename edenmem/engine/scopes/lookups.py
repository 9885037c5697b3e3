"""What `MemoryService` reads from the store before its parts go to work. Everything here blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from edenmem.engine.reports import ScopeStatus
from edenmem.engine.scopes.overview import scope_statuses
from edenmem.engine.scopes.people import person_of
from edenmem.engine.scopes.references import Resolver
from edenmem.engine.scopes.visibility import human_senders
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import is_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

T = TypeVar("T")


def existing_session(store: Store, session: str) -> Session:
    """The session with this ID or name.

    Raises:
        NotFoundError: there is none, or it is deleted.
    """
    return _existing("session", session, store.host.session, Resolver(store).session)


def existing_agent(store: Store, agent: str) -> Agent:
    """The agent with this ID or username.

    Raises:
        NotFoundError: there is none, or it is deleted.
    """
    return _existing("agent", agent, store.host.agent, Resolver(store).agent)


def existing_user(store: Store, user: str) -> User:
    """The account with this ID or username.

    Raises:
        NotFoundError: there is none, or it is deleted.
    """
    return _existing("user", user, store.host.user, Resolver(store).user)


def _existing(
    what: str, given: str, by_id: Callable[[str], T | None], by_name: Callable[[str], T]
) -> T:
    """Find what is given by its whole ID or by its name."""
    demand_reference(what, given)
    if not is_id(given):
        return by_name(given)
    found = by_id(given)
    if found is None:
        raise NotFoundError(f"there is no {what} {given}", hint=f"see 'edenmem {what} list'")
    return found


def speaker_id(store: Store, user: str) -> str:
    """The ID of the account that an agent is about to answer, given by ID or username. An ID that
    no account has is that of a stranger.

    Raises:
        NotFoundError: no account has that name.
    """
    demand_reference("user", user)
    return user if is_id(user) else Resolver(store).user(user).id


def demand_reference(what: str, given: object) -> None:
    """Refuse what is neither an ID nor a name.

    Raises:
        UsageError: it is not a text, or blank.
    """
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{what} must be a name or an ID: {given!r:.60}")


def session_and_agents(
    store: Store, session_id: str, agent_id: str | None
) -> tuple[Session, list[Agent]]:
    """The session, and those of its agents who are meant and exist: at least one.

    Raises:
        NotFoundError: no such session, the agent takes no part in it, or no agent is left.
    """
    session = existing_session(store, session_id)
    wanted = session.agents
    if agent_id is not None:
        agent = existing_agent(store, agent_id)
        if agent.id not in session.agents:
            raise NotFoundError(
                f"agent {agent.username!r} takes no part in session {session.label!r}"
            )
        wanted = (agent.id,)
    agents = [agent for agent in map(store.host.agent, wanted) if agent is not None]
    if not agents:
        raise NotFoundError(f"no agent of session {session.label} exists (any more)")
    return session, agents


def add_messages(store: Store, session_id: str, messages: Sequence[Message]) -> int:
    """Store messages, and their senders among the session's users; how many were new."""
    session = existing_session(store, session_id)
    new = tuple(s for s in human_senders(session, messages) if s not in session.users)
    if new:  # before their messages: at no time has a session a speaker whom it does not list
        store.host.put_session(msgspec.structs.replace(session, users=(*session.users, *new)))
    return store.host.add_messages(session_id, messages)


def waiting_scopes(
    store: Store,
    settings: Settings,
    *,
    agent_id: str | None,
    kinds: Sequence[ScopeKind],
    user_id: str | None,
    every: bool,
) -> list[Scope]:
    """Scopes that are due, or have a version that is still to be propagated; with ``every``, also
    all in which a reflection is pending."""
    agent_id = existing_agent(store, agent_id).id if agent_id else None
    owners = _owners(store, user_id) if user_id else None
    statuses = scope_statuses(
        store, settings, agent_id=agent_id, kinds=kinds, user_ids=owners, min_pending=1
    )
    due = [status.scope for status in statuses if status.due or every]
    unpropagated = (
        scope
        for scope in store.propagation.find_unpropagated(agent_id=agent_id)
        if (not kinds or scope.kind in kinds) and (owners is None or scope.user_id in owners)
    )
    return list(dict.fromkeys((*due, *unpropagated)))


def agent_statuses(
    store: Store, settings: Settings, agent_id: str, user_id: str | None, session_id: str | None
) -> tuple[ScopeStatus, ...]:
    """The agent's scopes, of user scopes only the named user's, of session scopes only the named
    session's, if one is named."""
    agent_id = existing_agent(store, agent_id).id
    owners = (None, *_owners(store, user_id)) if user_id else None
    session_id = existing_session(store, session_id).id if session_id else None
    return tuple(
        status
        for status in scope_statuses(store, settings, agent_id=agent_id, details=True)
        if (owners is None or status.scope.user_id in owners)
        and (session_id is None or status.scope.session_id in (None, session_id))
    )


def _owners(store: Store, user: str) -> tuple[str, ...]:
    """The owners of the scopes of a user, given by ID or username."""
    demand_reference("user", user)
    return person_of(store, Resolver(store).user_id(user)).ids
