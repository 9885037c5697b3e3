"""Rules for the scopes that a session or operator may read, and that a session may write.

All reads of memory use these rules. A view is a list of exact scopes: a missing ID, an unknown ID
or the ID of a deleted user removes a scope, and never widens the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from edenmem.engine.scopes.references import person_with, resolve_person, user_scopes
from edenmem.errors import NotFoundError, ScopeError
from edenmem.models.host import Agent, Message, Person, Session, User
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store

#: Kinds of scopes in reach of one user alone. Groups and sessions have other participants.
OWN_KINDS = frozenset({ScopeKind.AGENT, ScopeKind.SHARD, ScopeKind.USER})


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The scopes that an agent may read and write in a session, from broad to narrow.

    ``user`` is the account of the only person in the session, also while user memory is switched
    off; None with several or no people. ``person`` has all accounts of this person. ``users`` are
    the known accounts of all participants by ID, ``policies`` those of the readable scopes.
    """

    reads: tuple[Scope, ...]
    writes_facts: tuple[Scope, ...]
    writes_reflections: tuple[Scope, ...]
    user: User | None
    person: Person | None
    users: Mapping[str, User]
    policies: Mapping[Scope, Policy]

    def narrow_to_writers(self, messages: Sequence[Message]) -> SessionView:
        """Limit writable user scopes to the accounts that wrote these messages.

        Facts go to the scope of any account that wrote a message (the latest author first),
        reflections to that of the latest author. Without authors, both go to that of ``user``.
        """
        if self.person is None or self.user is None:
            return self
        own = {account.id for account in self.person.accounts}
        spoke = (m.sender for m in reversed(messages) if m.role == "user" and not m.trigger)
        writers = tuple(dict.fromkeys(each for each in spoke if each in own)) or (self.user.id,)
        of_user = {scope.user_id: scope for scope in self.writes_facts if scope.user_id}
        return msgspec.structs.replace(
            self,
            writes_facts=(
                *(scope for scope in self.writes_facts if scope.user_id is None),
                *(of_user[writer] for writer in writers if writer in of_user),
            ),
            writes_reflections=tuple(
                scope for scope in self.writes_reflections if scope.user_id in (None, writers[0])
            ),
        )


def human_senders(session: Session, messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the distinct accounts of people who wrote ``messages``, in order."""
    senders = (
        message.sender
        for message in messages
        if message.role == "user" and not message.trigger and message.sender
    )
    return tuple(dict.fromkeys(sender for sender in senders if sender not in session.agents))


def people_who_wrote(store: Store, session: Session) -> tuple[str, ...]:
    """Return the distinct accounts of all people who ever wrote in the session."""
    return tuple(
        sender for sender in store.host.senders(session.id) if sender not in session.agents
    )


def current_view(
    store: Store,
    session: Session,
    agent: Agent,
    *,
    speaker: str | None = None,
    own_only: bool = False,
) -> SessionView:
    """Return the scopes that ``agent`` may read and write in ``session`` now.

    - The session scope: always.
    - User scopes: if the session has exactly one person, and user memory is switched on. They
      include all accounts of the person, not only those in the session.
    - The group scope: if the session has a group.
    - The agent scope and active shards: if agent memory is switched on.

    Participants are the session's accounts, all senders of its messages, and ``speaker``. A paused
    scope is readable but not writable; a paused shard is neither. An incognito session writes
    nothing. A chat of an unknown person (a session that edenmem stored, without people) writes the
    session scope alone: anyone could plant memory for all users otherwise. ``own_only`` limits
    reads to `OWN_KINDS`.
    """
    ids = tuple(dict.fromkeys((*session.users, *people_who_wrote(store, session), speaker)))
    users = store.host.users_by_ids([each for each in ids if each])
    people = {users[each].person_id if each in users else each for each in ids if each}
    person = person_with(store, *people) if len(people) == 1 else None
    user = next((each for each in person.accounts if each.id in ids), None) if person else None
    shards = store.memory.shards(agent.id) if agent.agent_memory_enabled else []

    reads: list[Scope] = []
    if agent.agent_memory_enabled:
        reads.append(Scope.agent(agent.id))
        reads.extend(policy.home for policy in shards if policy.active)
    if session.group_id:
        reads.append(Scope.group(agent.id, session.group_id))
    if person is not None and user is not None and agent.user_memory_enabled:
        reads.extend(user_scopes(agent.id, person))
    reads.append(Scope.session(agent.id, session.id))

    policies = store.memory.policies(reads)
    is_anonymous = session.imported and not people
    writable = () if session.incognito else reads[-1:] if is_anonymous else reads
    writes = tuple(each for each in writable if each not in policies or policies[each].active)
    return SessionView(
        reads=tuple(each for each in reads if not own_only or each.kind in OWN_KINDS),
        writes_facts=tuple(scope for scope in writes if scope.kind is not ScopeKind.SESSION),
        writes_reflections=writes,
        user=user,
        person=person if user is not None else None,
        users=users,
        policies=policies,
    )


def reader_scopes(
    store: Store,
    agent: Agent,
    *,
    user_id: str | None = None,
    account_id: str | None = None,
    group_id: str | None = None,
    shards: Sequence[str] | None = None,
    kinds: Sequence[ScopeKind] | None = None,
) -> tuple[Scope, ...]:
    """Return the scopes of an operator's search, from broad to narrow.

    They are the agent scope and all shards, including paused ones, and those of a user or group if
    given.

    Args:
        store: Store with the agent's shards and the user's accounts.
        agent: The agent.
        user_id: Any account of a user: adds the scopes of all their accounts.
        account_id: Limits the user's scopes to this account.
        group_id: Adds the scope of this group.
        shards: Only these shards of the agent (None or empty: all).
        kinds: Only scopes of these kinds (None or empty: all readable ones).

    Raises:
        ScopeError: a requested kind needs a user, a group or a session.
        NotFoundError: the agent does not have one of the shards.
    """
    visible = [Scope.agent(agent.id), *_select_shards(store, agent, shards)]
    if group_id:
        visible.append(Scope.group(agent.id, group_id))
    if user_id or account_id:
        visible.extend(user_scopes(agent.id, resolve_person(store, user_id, account_id)))
    if not kinds:
        return tuple(visible)
    # An agent without shards is valid.
    for kind in set(kinds) - {scope.kind for scope in visible} - {ScopeKind.SHARD}:
        raise ScopeError(
            f"{kind} memory requires a {kind}", hint=f"specify --{kind}, or omit the kind"
        )
    return tuple(scope for scope in visible if scope.kind in kinds)


def _select_shards(store: Store, agent: Agent, names: Sequence[str] | None) -> list[Scope]:
    existing = [policy.home for policy in store.memory.shards(agent.id)]
    if not names:
        return existing
    owners = {scope.owner for scope in existing}
    for name in names:
        if name not in owners:
            known = ", ".join(sorted(owners)) or "none"
            raise NotFoundError(
                f"agent {agent.username!r} has no shard {name!r}", hint=f"shards: {known}"
            )
    return [scope for scope in existing if scope.owner in names]
