"""Store lookups of `MemoryService`. All functions block."""

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
    """Return the session with this ID or name.

    Raises:
        NotFoundError: the session does not exist, or was deleted.
    """
    return _existing("session", session, store.host.session, Resolver(store).session)


def existing_agent(store: Store, agent: str) -> Agent:
    """Return the agent with this ID or username.

    Raises:
        NotFoundError: the agent does not exist, or was deleted.
    """
    return _existing("agent", agent, store.host.agent, Resolver(store).agent)


def existing_user(store: Store, user: str) -> User:
    """Return the account with this ID or username.

    Raises:
        NotFoundError: the account does not exist, or was deleted.
    """
    return _existing("user", user, store.host.user, Resolver(store).user)


def _existing(
    what: str, given: str, by_id: Callable[[str], T | None], by_name: Callable[[str], T]
) -> T:
    """Find an object by full ID or by name."""
    demand_reference(what, given)
    if not is_id(given):
        return by_name(given)
    found = by_id(given)
    if found is None:
        raise NotFoundError(f"{what} not found: {given}", hint=f"see 'edenmem {what} list'")
    return found


def speaker_id(store: Store, user: str) -> str:
    """Return the ID of the account to answer; an unknown ID belongs to a stranger.

    Raises:
        NotFoundError: no account has this username.
    """
    demand_reference("user", user)
    return user if is_id(user) else Resolver(store).user(user).id


def demand_reference(what: str, given: object) -> None:
    """Check that a reference is a nonblank string.

    Raises:
        UsageError: the reference is blank or not a string.
    """
    if not isinstance(given, str) or not given.strip():
        raise UsageError(f"{what} must be a name or an ID: {given!r:.60}")


def session_and_agents(
    store: Store, session_id: str, agent_id: str | None
) -> tuple[Session, list[Agent]]:
    """Return the session, and the given agent or all existing agents of it (at least one).

    Raises:
        NotFoundError: the session does not exist, the agent is not part of it, or all its agents
            are missing.
    """
    session = existing_session(store, session_id)
    wanted = session.agents
    if agent_id is not None:
        agent = existing_agent(store, agent_id)
        if agent.id not in session.agents:
            raise NotFoundError(
                f"agent {agent.username!r} is not part of session {session.label!r}"
            )
        wanted = (agent.id,)
    agents = [agent for agent in map(store.host.agent, wanted) if agent is not None]
    if not agents:
        raise NotFoundError(f"no agent of session {session.label!r} exists")
    return session, agents


def add_messages(store: Store, session_id: str, messages: Sequence[Message]) -> int:
    """Store messages, add their senders to the session, and return the number of new messages."""
    session = existing_session(store, session_id)
    new = tuple(s for s in human_senders(session, messages) if s not in session.users)
    if new:  # first, so that every sender of a stored message is listed
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
    """Return scopes that are due, or have a version to propagate.

    With ``every``, all scopes with pending reflections or a text over its limit are due, and each
    scope with a text that is named: of a user, or an agent's own.
    """
    agent_id = existing_agent(store, agent_id).id if agent_id else None
    owners = _owners(store, user_id) if user_id else None
    statuses = scope_statuses(
        store, settings, agent_id=agent_id, kinds=kinds, user_ids=owners, min_pending=not every
    )
    is_named = bool(user_id) or (agent_id is not None and tuple(kinds) == (ScopeKind.AGENT,))

    def is_chosen(status: ScopeStatus) -> bool:
        most = 0 if is_named else status.word_limit
        return status.due or (every and (status.pending > 0 or status.words > most))

    due = [status.scope for status in statuses if is_chosen(status)]
    unpropagated = (
        scope
        for scope in store.propagation.find_unpropagated(agent_id=agent_id)
        if (not kinds or scope.kind in kinds) and (owners is None or scope.user_id in owners)
    )
    return list(dict.fromkeys((*due, *unpropagated)))


def agent_statuses(
    store: Store, settings: Settings, agent_id: str, user_id: str | None, session_id: str | None
) -> tuple[ScopeStatus, ...]:
    """Return the agent's scopes, with user and session scopes limited to a user or session."""
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
    """Return the IDs of all accounts of a user, given by ID or username."""
    demand_reference("user", user)
    return person_of(store, Resolver(store).user_id(user)).ids
