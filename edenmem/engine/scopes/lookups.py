"""What `MemoryService` reads from the store before its parts go to work. Everything here blocks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edenmem.engine.reports import ScopeStatus
from edenmem.engine.scopes.overview import scope_statuses
from edenmem.engine.scopes.people import person_of
from edenmem.engine.scopes.visibility import human_senders
from edenmem.errors import NotFoundError
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


def existing_session(store: Store, session_id: str) -> Session:
    """The session.

    Raises:
        NotFoundError: there is none, or it is deleted.
    """
    session = store.host.session(session_id)
    if session is None:
        raise NotFoundError(f"there is no session {session_id}", hint="see 'edenmem session list'")
    return session


def existing_agent(store: Store, agent_id: str) -> Agent:
    """The agent.

    Raises:
        NotFoundError: there is none, or it is deleted.
    """
    agent = store.host.agent(agent_id)
    if agent is None:
        raise NotFoundError(f"there is no agent {agent_id}", hint="see 'edenmem agent list'")
    return agent


def existing_user(store: Store, user_id: str) -> User:
    """The account.

    Raises:
        NotFoundError: there is none, or it is deleted.
    """
    found = store.host.accounts_of(user_id)
    user = next((each for each in found if each.id == user_id and not each.deleted), None)
    if user is None:
        raise NotFoundError(f"there is no user {user_id}", hint="see 'edenmem user list'")
    return user


def session_and_agents(
    store: Store, session_id: str, agent_id: str | None
) -> tuple[Session, list[Agent]]:
    """The session, and those of its agents who are meant and exist: at least one.

    Raises:
        NotFoundError: no such session, the agent takes no part in it, or no agent is left.
    """
    session = existing_session(store, session_id)
    if agent_id is not None and agent_id not in session.agents:
        agent = store.host.agent(agent_id)
        who = repr(agent.username) if agent else agent_id
        raise NotFoundError(f"agent {who} takes no part in session {session.label!r}")
    wanted = session.agents if agent_id is None else (agent_id,)
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
    owners = person_of(store, user_id).ids if user_id else None
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
    existing_agent(store, agent_id)
    owners = (None, *person_of(store, user_id).ids) if user_id else None
    return tuple(
        status
        for status in scope_statuses(store, settings, agent_id=agent_id, details=True)
        if (owners is None or status.scope.user_id in owners)
        and (session_id is None or status.scope.session_id in (None, session_id))
    )
