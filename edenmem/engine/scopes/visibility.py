"""Which scopes a session or an operator may read, and which a session may write.

Everything that reads memory for somebody asks here, so that the rules stand in one place. A view
is a list of exact scopes: an id that is missing, unknown or of a deleted person leaves a scope
out, and never makes the list wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from edenmem.engine.scopes.people import person_with, resolve_person, user_scopes
from edenmem.errors import NotFoundError, ScopeError
from edenmem.memory import closed_reason
from edenmem.models.host import Agent, Message, Person, Session, User
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent in one session may read and write, scopes from broad to narrow.

    ``user`` is the account that stands for the one person of the session, None if there are several
    people or none is known; it is also set while user memory is switched off. ``person`` has all
    accounts of that person. ``multi_user`` says that there are several people.
    """

    reads: tuple[Scope, ...]
    writes_facts: tuple[Scope, ...]
    writes_reflections: tuple[Scope, ...]
    user: User | None
    person: Person | None
    multi_user: bool
    incognito: bool

    def narrow_to_writers(self, messages: Sequence[Message]) -> SessionView:
        """The view that writes what these messages say.

        Of the user's scopes a fact may go to that of any account that spoke in them, a reflection
        to that of the one that spoke last; if none did, both to that of ``user``. In
        ``writes_facts`` the last one comes first.
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
            writes_reflections=_without_other_accounts(self.writes_reflections, writers[0]),
        )


def human_senders(session: Session, messages: Iterable[Message]) -> tuple[str, ...]:
    """The accounts of the people who wrote ``messages``, each once, in order."""
    senders = (
        message.sender
        for message in messages
        if message.role == "user" and not message.trigger and message.sender
    )
    return tuple(dict.fromkeys(sender for sender in senders if sender not in session.agents))


def people_who_wrote(store: Store, session: Session) -> tuple[str, ...]:
    """The accounts of all people who ever wrote in the session, each once."""
    return tuple(
        sender for sender in store.host.senders(session.id) if sender not in session.agents
    )


def session_scopes(
    store: Store,
    session: Session,
    agent: Agent,
    users: Sequence[User],
    *,
    senders: Iterable[str] = (),
) -> SessionView:
    """What ``agent`` may read and write in ``session``.

    The session's own scope always; the user's if the session has exactly one person (two
    accounts of one person are one) and the agent has user memory on; the group's if the session
    names one; the agent's and its active shards' if the agent has agent memory on. A paused scope
    is read but not written, a paused shard is left out altogether. An incognito session reads as
    any other and writes nothing.

    The user's scopes are those of all of the person's accounts, whether they take part in the
    session or not.

    Args:
        store: Asked for policies, and for accounts that ``users`` lacks.
        session: The conversation.
        agent: One of its agents.
        users: The accounts of ``session.users``, as far as they exist.
        senders: Ids of accounts that are seen to take part, whether ``session.users`` has them or
            not: a second person is a second person.
    """
    accounts = _accounts(store, (*session.users, *senders), users)
    people = {account.person_id if account else given for given, account in accounts.items()}
    person = person_with(store, *people) if len(people) == 1 else None
    user = next((each for each in person.accounts if each.id in accounts), None) if person else None
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

    writes = () if session.incognito else _active(store, reads)
    return SessionView(
        reads=tuple(reads),
        writes_facts=tuple(scope for scope in writes if scope.kind is not ScopeKind.SESSION),
        writes_reflections=writes,
        user=user,
        person=person if user is not None else None,
        multi_user=len(people) > 1,
        incognito=session.incognito,
    )


def current_view(
    store: Store, session: Session, agent: Agent, *, speaker: str | None = None
) -> SessionView:
    """`session_scopes` as of now: with the session's accounts and everybody who ever wrote in it,
    however long ago, read from the store, and ``speaker`` counted among the people if one is
    given."""
    senders = people_who_wrote(store, session)
    if speaker:
        senders = (*senders, speaker)
    users = tuple(store.host.users_by_ids((*session.users, *senders)).values())
    return session_scopes(store, session, agent, users, senders=senders)


def reader_scopes(
    store: Store,
    agent: Agent,
    *,
    user_id: str | None = None,
    account_id: str | None = None,
    group_id: str | None = None,
    shards: Sequence[str] | None = None,
    kinds: Sequence[ScopeKind] | None = None,
    session: Session | None = None,
) -> tuple[Scope, ...]:
    """The scopes whose facts an operator's search reads, from broad to narrow.

    The agent's own and all of its shards', paused ones too; a user's or a group's only if it is
    named. With a ``session``, what that session may see, and no more.

    Args:
        store: Asked for the agent's shards and the user's accounts.
        agent: Whose memory.
        user_id: Any account of the user whose facts are read too, those of all their accounts.
        account_id: Of the user's accounts only this one.
        group_id: The group whose facts are read too.
        shards: Only these of the agent's shards; None or empty: all of them.
        kinds: Only scopes of these kinds; None or empty: all that may be seen.
        session: See with the eyes of this session.

    Raises:
        ScopeError: a kind is asked for whose owner is not given, or that the session may not see.
        NotFoundError: the agent has no shard of that name.
    """
    if session is not None:
        if group_id and group_id != session.group_id:
            raise ScopeError(f"session {session.label} is not of group {group_id}")
        view = current_view(store, session, agent, speaker=user_id)
        seen = _without_other_accounts(view.reads, account_id) if account_id else view.reads
        visible = [scope for scope in seen if not _other_shard(scope, shards)]
    else:
        visible = [Scope.agent(agent.id), *_select_shards(store, agent, shards)]
        if group_id:
            visible.append(Scope.group(agent.id, group_id))
        if user_id or account_id:
            visible.extend(user_scopes(agent.id, resolve_person(store, user_id, account_id)))
    if not kinds:
        return tuple(visible)
    _demand(kinds, visible, session)
    return tuple(scope for scope in visible if scope.kind in kinds)


def still_open(store: Store, agent_id: str, scopes: Sequence[Scope]) -> frozenset[Scope]:
    """Those of the scopes that are not paused, nor switched off with their agent, by now."""
    agent, policies = store.host.agent(agent_id), store.memory.policies(scopes)
    return frozenset(
        scope for scope in scopes if not closed_reason(scope, agent, policies.get(scope))
    )


def _accounts(store: Store, ids: Iterable[str], users: Sequence[User]) -> dict[str, User | None]:
    """The account of each id, in order; None for one that nobody knows."""
    known = {user.id: user for user in users}
    wanted = tuple(dict.fromkeys(ids))
    missing = [given for given in wanted if given not in known]
    if missing:
        known.update(store.host.users_by_ids(missing))
    return {given: known.get(given) for given in wanted}


def _without_other_accounts(scopes: Sequence[Scope], account_id: str) -> tuple[Scope, ...]:
    """The scopes, of users' only that of this account."""
    return tuple(scope for scope in scopes if scope.user_id in (None, account_id))


def _active(store: Store, scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    policies = store.memory.policies(scopes)
    return tuple(
        scope for scope in scopes if (policy := policies.get(scope)) is None or policy.active
    )


def _select_shards(store: Store, agent: Agent, names: Sequence[str] | None) -> list[Scope]:
    existing = [policy.home for policy in store.memory.shards(agent.id)]
    if not names:
        return existing
    owners = {scope.owner for scope in existing}
    for name in names:
        if name not in owners:
            known = ", ".join(sorted(owners)) or "none"
            raise NotFoundError(f"agent {agent.username} has no shard {name!r}; it has {known}")
    return [scope for scope in existing if scope.owner in names]


def _other_shard(scope: Scope, names: Sequence[str] | None) -> bool:
    return bool(names) and scope.kind is ScopeKind.SHARD and scope.owner not in (names or ())


def _demand(kinds: Sequence[ScopeKind], visible: Sequence[Scope], session: Session | None) -> None:
    """Refuse a kind of which nothing can be seen because nobody said whose.

    An agent without shards is no error: there is simply nothing of that kind.
    """
    seen = {scope.kind for scope in visible} | {ScopeKind.SHARD}
    for kind in kinds:
        if kind in seen:
            continue
        if session is not None:
            raise ScopeError(f"session {session.label} may not see any {kind} memory")
        raise ScopeError(
            f"{kind} memory needs a {kind}", hint=f"name one with --{kind}, or leave the kind out"
        )
