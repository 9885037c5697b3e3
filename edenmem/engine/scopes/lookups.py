"""Read the host, scopes and memory, for `MemoryService` and operators. All functions block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from edenmem.engine.reports import ScopeStatus
from edenmem.engine.scopes.overview import (
    consolidate_at_of,
    group_overviews,
    in_database,
    scope_statuses,
    store_overview,
    word_limit_of,
)
from edenmem.engine.scopes.references import Resolver, load_labels, person_of, resolve_person
from edenmem.engine.scopes.visibility import human_senders, reader_scopes
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import is_id
from edenmem.models.memory import Consolidation, Fact, Policy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.models.told import Note
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched

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


def add_messages(
    store: Store, session_id: str, messages: Sequence[Message], *, note: Note | None = None
) -> int:
    """Store messages and add their senders to the session; see `Host.add_messages`."""
    session = existing_session(store, session_id)
    new = tuple(s for s in human_senders(session, messages) if s not in session.users)
    if new:  # first, so that every sender of a stored message is listed
        store.host.put_session(msgspec.structs.replace(session, users=(*session.users, *new)))
    return store.host.add_messages(session_id, messages, note=note)


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
    owners: Sequence[str] | None = None
    if user_id:
        demand_reference("user", user_id)
        owners = person_of(store, Resolver(store).user_id(user_id)).ids
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
        for scope in store.memory.find_unpropagated(agent_id=agent_id)
        if (not kinds or scope.kind in kinds) and (owners is None or scope.user_id in owners)
    )
    return list(dict.fromkeys((*due, *unpropagated)))


#: Texts per query.
_BATCH = 200


class HostReader:
    """Read agents, accounts, sessions, groups and messages."""

    def __init__(self, store: Store) -> None:
        self.agents = store.host.agents
        self.agent = store.host.agent
        self.users = store.host.users
        self.sessions = store.host.sessions
        self.session = store.host.session
        self.messages = store.host.messages
        self.find_by_prefix = store.host.find_by_prefix
        self.shards = store.memory.shards
        self.groups = partial(group_overviews, store)
        self.person = partial(person_of, store)
        self.choose_accounts = partial(resolve_person, store)


class ScopeReader:
    """Read scopes with their labels, sizes, limits and policies."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self.labels = partial(load_labels, store)
        self.statuses = partial(scope_statuses, store, settings)
        self.overview = partial(store_overview, store, settings)
        self.readable = partial(reader_scopes, store)
        self.in_database = partial(in_database, store, settings)
        self.is_beside_platform = store.database.is_beside_platform

    def of_agent(self, agent_id: str, kinds: Sequence[ScopeKind]) -> tuple[Scope, ...]:
        """Return the agent's scopes of these kinds (empty: all kinds)."""
        found = self._store.memory.scopes(agent_id=agent_id, kinds=kinds)
        return tuple(summary.scope for summary in found)

    def policy(self, scope: Scope) -> Policy | None:
        """Return the policy of a scope, or None."""
        return self._store.memory.policies([scope]).get(scope)

    def status(self, scope: Scope) -> ScopeStatus:
        """Return the status of one scope, which may be empty."""
        stored = self.statuses(
            agent_id=scope.agent_id,
            kinds=[scope.kind],
            user_ids=[scope.user_id] if scope.user_id else None,
            details=True,
        )
        policy = self.policy(scope)
        return next((status for status in stored if status.scope == scope), None) or ScopeStatus(
            scope=scope,
            facts=0,
            pending=0,
            consolidate_at=consolidate_at_of(self._store, self._settings, scope, policy),
            due=False,
            active=policy is None or policy.active,
            version=0,
            words=0,
            word_limit=word_limit_of(self._store, self._settings, scope, policy),
        )


class MemoryReader:
    """Read current facts, reflections and texts."""

    def __init__(self, store: Store, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self.fact = store.memory.fact
        self.reflections = store.memory.reflections
        self.reflection = store.memory.reflection
        self.pending = store.memory.pending

    def facts(
        self, filter: FactFilter, *, limit: int | None = None, with_vectors: bool = False
    ) -> Iterator[Fact]:
        """Return facts, most recently said or edited first; expired ones only if asked for."""
        if filter.expired_at is None:
            filter = msgspec.structs.replace(filter, live_at=filter.live_at or self._clock())
        return self._store.memory.facts(filter, limit=limit, with_vectors=with_vectors)

    def find_fact(self, fact_id: str) -> Fact:
        """Return the fact with this ID.

        Raises:
            NotFoundError: the fact was deleted.
        """
        if (fact := self.fact(fact_id)) is None:
            raise NotFoundError(
                f"the fact was deleted: {fact_id}",
                hint=f"restore it with 'edenmem restore {fact_id}', "
                f"or see 'edenmem history {fact_id}'",
            )
        return fact

    def texts(
        self,
        *,
        agent_id: str | None = None,
        kinds: Sequence[ScopeKind] = (),
        user_ids: Sequence[str] | None = None,
    ) -> Iterator[Consolidation]:
        """Return the texts of scopes with their effective word limits."""
        stored = self._store.memory.scopes(agent_id=agent_id, kinds=kinds, user_ids=user_ids)
        for batch in batched((s.scope for s in stored if s.version), _BATCH):
            yield from self._with_limits(self._store.memory.consolidations(batch)).values()

    def text(self, scope: Scope) -> Consolidation | None:
        """Return the text of one scope with its effective word limit."""
        return self._with_limits(self._store.memory.consolidations([scope])).get(scope)

    def _with_limits(self, texts: Mapping[Scope, Consolidation]) -> dict[Scope, Consolidation]:
        """Replace the stored limits with the effective ones."""
        policies = self._store.memory.policies(list(texts))
        return {
            scope: msgspec.structs.replace(
                text,
                word_limit=word_limit_of(
                    self._store, self._settings, scope, policies.get(scope), text
                ),
            )
            for scope, text in texts.items()
        }
