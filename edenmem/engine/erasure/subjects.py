"""From what a person types to the subject of a forgetting, with all that it is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edenmem.engine.scopes.people import accounts_ever_of, person_of
from edenmem.engine.scopes.references import Resolver
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.forgetting import Subject, SubjectKind, block
from edenmem.models.host import Agent
from edenmem.models.ids import is_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store


def find_subject(
    store: Store,
    *,
    user: str | None = None,
    session: str | None = None,
    group: str | None = None,
    agent: str | None = None,
    names: Sequence[str] = (),
) -> Subject:
    """The one subject that the options name.

    Somebody who is not known any more, because an earlier forgetting got so far and was cut off or
    could not finish, is recognised by what they were called then.

    Args:
        store: Where to look.
        user: A user, of one ``agent`` or of all.
        session: A session.
        group: A group; needs ``agent``.
        agent: Alone: the whole memory of this agent.
        names: What else the subject is called in texts.

    Raises:
        UsageError: the options name none, or several.
        NotFoundError: there is no such thing.
    """
    given = [f"--{kind}" for kind, value in _pair_kinds(user, session, group) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other")
    resolver = Resolver(store)
    of = resolver.agent(agent) if agent else None
    try:
        if user:
            return _user(store, resolver, user, of, names)
        if session:
            if of is not None:
                raise UsageError("--session is forgotten by all agents", hint="leave out --agent")
            return _session(store, resolver, session, names)
        if group:
            if of is None:
                raise UsageError("--group needs --agent", hint="add --agent")
            owner = resolver.group(of, group)
            return Subject(kind="group", owner=owner, agent_id=of.id, names=_once((owner, *names)))
    except NotFoundError:
        known = _find_forgotten(store, user or session or group or "", names)
        if known is None:
            raise
        return known
    if of is None:
        raise UsageError(
            "nobody is named", hint="say whom with --user, --session, --group or --agent"
        )
    return Subject(kind="agent", agent_id=of.id, names=_once(names))


def check_conversations(store: Store, subject: Subject) -> None:
    """See that the conversations of a subject are ours to remove.

    Raises:
        UsageError: they are another program's, or the subject has none of its own.
    """
    if store.database.info().kind != "sqlite" or subject.kind not in ("user", "session"):
        raise UsageError(
            "--messages goes with --user or --session on SQLite; elsewhere conversations are the"
            " platform's",
            hint="leave out --messages",
        )


def _pair_kinds(
    user: str | None, session: str | None, group: str | None
) -> Iterable[tuple[SubjectKind, str | None]]:
    return (("user", user), ("session", session), ("group", group))


def _user(
    store: Store, resolver: Resolver, text: str, agent: Agent | None, names: Sequence[str]
) -> Subject:
    agent_id = agent.id if agent is not None else None
    person = person_of(store, resolver.user_id(text, agent_id=agent_id))
    accounts = accounts_ever_of(store, person)
    ids = _once((*person.ids, *(account.id for account in accounts)))
    sessions = [session.id for session in store.host.sessions_of(accounts=ids)]
    shown = store.host.display_names(ids, sessions)
    return Subject(
        kind="user",
        owner=person.id,
        agent_id=agent_id,
        accounts=ids,
        names=_once((*(account.username for account in accounts), *shown, *names, *ids)),
    )


def _session(store: Store, resolver: Resolver, text: str, names: Sequence[str]) -> Subject:
    try:
        session = resolver.session(text)
    except NotFoundError:
        if not _has_memory_left(store, text):
            raise
        return Subject(kind="session", owner=text, names=_once((*names, text)))
    called = (session.name,) if session.name else ()
    return Subject(kind="session", owner=session.id, names=_once((*called, *names, session.id)))


def _has_memory_left(store: Store, session_id: str) -> bool:
    """Whether a session that is gone left memory of its own."""
    if not is_id(session_id):
        return False
    scopes = [Scope.session(agent_id, session_id) for agent_id in store.host.find_agent_ids()]
    reflections = store.memory.reflections(scopes, limit=1)
    return next(iter(reflections), None) is not None or bool(store.memory.consolidations(scopes))


def _find_forgotten(store: Store, text: str, names: Sequence[str]) -> Subject | None:
    called = block("called", text.strip().casefold())
    for forgetting in store.erasure.forgettings():
        if called in forgetting.blocks:
            return Subject(
                kind=forgetting.kind, known_id=forgetting.id, names=_once((text.strip(), *names))
            )
    return None


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name.strip()))
