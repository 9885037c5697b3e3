"""Resolve the subject of a forgetting, with all its names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from edenmem.engine.erasure.facts import trace_facts
from edenmem.engine.scopes.people import accounts_ever_of, person_of
from edenmem.engine.scopes.references import Resolver
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.forgetting import Forgetting, Subject, SubjectKind, block
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
    facts: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Subject:
    """Return the subject of these options.

    A subject that an incomplete forgetting has already removed is found by its former name.

    Args:
        store: The store.
        user: A user, of one ``agent`` or of all agents.
        session: A session.
        group: A group; requires ``agent``.
        agent: Without the others: the memory of this agent.
        facts: IDs of facts, or prefixes; a deleted fact needs its full ID.
        names: Further names of the subject in texts.

    Raises:
        UsageError: the options have no subject, or several.
        NotFoundError: the subject does not exist.
    """
    given = [f"--{kind}" for kind, value in _pair_kinds(user, session, group) if value]
    if facts:
        given += ["--agent", "--fact"] if agent else ["--fact"]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other")
    resolver = Resolver(store)
    if facts:
        return _facts(store, resolver, facts, names)
    of = resolver.agent(agent) if agent else None
    try:
        if user:
            return _user(store, resolver, user, of, names)
        if session:
            if of is not None:
                raise UsageError("--session cannot be combined with --agent", hint="omit --agent")
            return _session(store, resolver, session, names)
        if group:
            if of is None:
                raise UsageError("--group requires --agent", hint="add --agent")
            owner = resolver.group(of, group)
            return Subject(kind="group", owner=owner, agent_id=of.id, names=_once((owner, *names)))
    except NotFoundError:
        known = _find_forgotten(store, user or session or group or "", names)
        if known is None:
            raise
        return known
    if of is None:
        raise UsageError(
            "nothing to forget", hint="specify --user, --session, --group, --agent or --fact"
        )
    return Subject(kind="agent", agent_id=of.id, names=_once(names))


def check_conversations(store: Store, subject: Subject) -> None:
    """Check that edenmem stores the conversations of a subject.

    Raises:
        UsageError: the platform stores them, or the subject has none.
    """
    with_messages = subject.kind in ("user", "session", "fact")
    if store.database.info().kind != "sqlite" or not with_messages:
        raise UsageError(
            "--messages requires --user, --session or --fact, and a SQLite store; otherwise the"
            " platform stores conversations",
            hint="omit --messages",
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


def _facts(
    store: Store, resolver: Resolver, references: Sequence[str], names: Sequence[str]
) -> Subject:
    """Return facts as a subject; those that an earlier forgetting has removed stay part of it.

    A prefix that an earlier forgetting used does not mean a later fact.

    Raises:
        UsageError: the prefix of a forgotten fact is now that of another one.
    """
    found: dict[str, None] = {}
    known_id = ""
    for reference in references:
        known = _find_forgetting(store, reference, ["fact"])
        try:
            fact_id = resolver.fact_id(reference)
        except NotFoundError:
            if known is None and not _is_in_log(store, reference):
                if _is_interrupted(store):
                    raise NotFoundError(
                        f"fact not found: {reference!r}; an erasure of facts was interrupted",
                        hint="to finish it, run its command again, with the same IDs",
                    ) from None
                raise
            fact_id = ""
        if known is not None and block("fact", fact_id or reference) not in known.blocks:
            if fact_id and known.closed_at is not None:
                raise UsageError(
                    f"{reference!r} is a prefix of an erased fact, and now also of another one",
                    hint=f"name the fact by its full ID: {fact_id}",
                )
            known_id = known.id
        else:
            found[fact_id or reference] = None
    traces = trace_facts(store, found)
    return Subject(
        kind="fact",
        agent_id=traces.agents[0] if len(traces.agents) == 1 else None,
        facts=tuple(found),
        references=_once(references),
        names=_once((*traces.texts, *names)),
        texts=tuple(text for text in traces.texts if text not in names),
        known_id=known_id,
    )


def _is_interrupted(store: Store) -> bool:
    """Check whether a forgetting of facts is incomplete, which another prefix does not find."""
    return any(one.kind == "fact" and one.closed_at is None for one in store.erasure.forgettings())


def _is_in_log(store: Store, fact_id: str) -> bool:
    """Check whether the log has entries of a fact, which may hold its text."""
    entries = store.log.audit(target_id=fact_id) if is_id(fact_id) else iter(())
    return any(entry.target_type == "fact" for entry in entries)


def _has_memory_left(store: Store, session_id: str) -> bool:
    """Check whether a deleted session still has memory."""
    if not is_id(session_id):
        return False
    scopes = [Scope.session(agent_id, session_id) for agent_id in store.host.find_agent_ids()]
    reflections = store.memory.reflections(scopes, limit=1)
    return next(iter(reflections), None) is not None or bool(store.memory.consolidations(scopes))


def _find_forgotten(store: Store, text: str, names: Sequence[str]) -> Subject | None:
    known = _find_forgetting(store, text, ["user", "session", "group"])
    if known is None:
        return None
    return Subject(kind=known.kind, known_id=known.id, names=_once((text.strip(), *names)))


def _find_forgetting(store: Store, text: str, kinds: Collection[SubjectKind]) -> Forgetting | None:
    """Return the forgetting of a subject with this former name."""
    called = block("called", text.strip().casefold())
    for forgetting in store.erasure.forgettings():
        if called in forgetting.blocks and forgetting.kind in kinds:
            return forgetting
    return None


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name.strip()))
