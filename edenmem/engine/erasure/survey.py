"""Resolve a subject, find all its memory, and keep its messages from being formed later.

Read-only; all functions block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from datetime import datetime

import msgspec

from edenmem.engine.context.told import find_tellings
from edenmem.engine.erasure.mentions import MentionSurvey, name_concerned, names_of
from edenmem.engine.erasure.passages import trace_facts, trace_reflections, walk_passages
from edenmem.engine.erasure.reports import ForgetPlan, Remains
from edenmem.engine.formation.recheck import apply_recorded
from edenmem.engine.scopes.references import Resolver, accounts_ever_of, person_of
from edenmem.engine.tokens import find_tokens
from edenmem.errors import ConflictError, NotFoundError, ScopeError, UsageError
from edenmem.memory.formations import finished_record, is_settled, settle
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.forgetting import Forgetting, Passage, Subject, SubjectKind, Traces, block
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.host import Session
from edenmem.models.ids import is_id
from edenmem.models.memory import Consolidation, Held, Reflection
from edenmem.models.records import StoredEntry
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.erasure import KINDS
from edenmem.store.protocol.store import Store


class Survey:
    """Read the store for one subject."""

    def __init__(self, store: Store, settings: Settings, subject: Subject) -> None:
        self._store = store
        self._settings = settings
        self._subject = subject

    def plan(self) -> ForgetPlan:
        """Return the plan of a forgetting."""
        subject, traces = self._subject, self.traces()
        traces = msgspec.structs.replace(traces, held=tuple(self._find_held(traces)))
        conversations = self._store.erasure.count_conversations(traces)
        derived = self.find_derived(traces)
        agents = {*traces.agents, *(one.agent_id for one in derived)}
        traces = msgspec.structs.replace(traces, agents=tuple(sorted(agents)))
        counts = count_traces(self._store, traces, [one.id for one in derived])
        if tokens := sum(1 for _ in find_tokens(self._store.tokens, subject)):
            counts["tokens"] = tokens
        names = names_of(subject)
        survey = MentionSurvey(self._store, self._settings, of_facts=subject.kind == "fact")
        mentions = survey.mentions(traces, names, derived)
        keys = [*traces.facts, *(scope.key for scope in traces.scopes)]
        known = next(
            (one for one in self._store.erasure.forgettings() if one.id == subject.id), None
        )
        return ForgetPlan(
            subject=subject,
            traces=traces,
            counts=counts,
            conversations=conversations,
            derived=tuple(one.id for one in derived),
            mentions=tuple(mentions),
            stays=tuple(self._stays(traces)),
            unreadable=tuple(name_concerned(subject, traces, survey.unreadable)),
            begun_at=known.begun_at if known is not None and known.closed_at is None else None,
            told=tuple(  # the replies to others
                one
                for one in find_tellings(self._store, keys)
                if one.reply.session_id not in traces.own
                and one.reply.user_id not in traces.accounts
            ),
        )

    # -- traces ------------------------------------------------------------------------------

    def traces(self) -> Traces:
        """Return the places of the subject's traces.

        Raises:
            ScopeError: a group or agent is forgotten without an agent.
        """
        subject, store = self._subject, self._store
        owner, agent_id = subject.owner, subject.agent_id
        if subject.kind == "fact":
            traces, _ = trace_facts(store, subject.facts)
            # The agents of removed facts are unknown: all caches may hold the text.
            known = traces.agents or tuple(sorted(store.host.find_agent_ids()))
            return msgspec.structs.replace(traces, agents=known)
        if subject.known_id:
            return Traces()
        if subject.kind == "user":
            return self._of_user()
        if subject.kind == "session":
            session, agents = store.host.session(owner), store.host.find_agent_ids()
            return Traces(
                scopes=tuple(Scope.session(agent, owner) for agent in agents),
                sources=(owner,),
                own=(owner,),
                agents=session.agents if session is not None else tuple(agents),
            )
        if agent_id is None:
            raise ScopeError(f"forgetting a {subject.kind} requires an agent")
        if subject.kind == "agent":
            return Traces(
                scopes=tuple(store.memory.scopes_of(agent_id)),
                own=_ids(store.host.sessions_of(agent_id=agent_id)),
                agent_id=agent_id,
                agents=(agent_id,),
            )
        sessions = [
            session
            for session in store.host.sessions_of(group_id=owner)
            if agent_id in session.agents
        ]
        return Traces(
            scopes=(Scope.group(agent_id, owner), *self._talks(sessions)),
            own=_ids(sessions),
            agent_id=agent_id,
            agents=(agent_id,),
        )

    def _of_user(self) -> Traces:
        subject, store = self._subject, self._store
        accounts = subject.accounts or (subject.owner,)
        own: list[Session] = []
        shared: list[Session] = []
        for session in store.host.sessions_of(accounts=accounts):
            if subject.agent_id in (None, *session.agents):
                people = {*session.users, *store.host.senders(session.id)} - {*session.agents}
                (own if people <= {*accounts} else shared).append(session)
        agents = store.host.find_agent_ids() if subject.agent_id is None else [subject.agent_id]
        whole = [Scope.user(agent, id) for agent in agents for id in accounts]
        with_them = {agent for session in (*own, *shared) for agent in session.agents}
        summaries = store.memory.scopes(agent_id=subject.agent_id, user_ids=accounts)
        with_them.update(summary.scope.agent_id for summary in summaries)
        return Traces(
            scopes=(*whole, *self._talks(own)),
            own=_ids(own),
            shared=_ids(shared),
            accounts=accounts,
            agent_id=subject.agent_id,
            agents=tuple(sorted(with_them if subject.agent_id is None else {subject.agent_id})),
        )

    def _talks(self, sessions: Iterable[Session]) -> Iterator[Scope]:
        for session in sessions:
            for agent_id in session.agents:
                if self._subject.agent_id in (None, agent_id):
                    yield Scope.session(agent_id, session.id)

    def _find_held(self, traces: Traces) -> Iterator[str]:
        """Yield the items waiting for review that were learned from the subject, or name it.

        They are removed without a question, since they are not memory.
        """
        names, sessions = names_of(self._subject), {*traces.own, *traces.sources}
        messages = {
            *traces.messages,
            *self._store.host.find_message_ids(traces.accounts, traces.shared),
        }
        for document in self._store.walk.documents((RecordKind.HELD,)):
            held = document.record
            if not isinstance(held, Held) or traces.agent_id not in (None, held.agent_id):
                continue
            texts = (held.content, held.quote, held.reasons)
            if (
                held.session_id in sessions
                or not messages.isdisjoint(held.source_message_ids)
                or any(map(names.are_in, texts))
            ):
                yield held.id

    def find_derived(self, traces: Traces) -> list[Reflection]:
        """Return reflections derived from the traces, directly or indirectly, farthest first."""
        inside = {one.id for one in trace_reflections(self._store, traces)}
        found: dict[str, Reflection] = {}
        parents = list(inside)
        while parents:
            children = self._store.memory.find_derived(parents)
            new = [one for one in children if one.id not in inside and one.id not in found]
            found.update((one.id, one) for one in new)
            parents = [one.id for one in new]
        return list(reversed(found.values()))

    # -- remaining data ----------------------------------------------------------------------

    def _stays(self, traces: Traces) -> Iterator[str]:
        yield "audit entries: actor, action, time and IDs, without content"
        yield "model usage: counts and costs, without names"
        if self._settings.llm.record:
            yield "the file of recorded answers (llm.record)"
        if traces.facts and traces.shared and not traces.messages:
            yield "conversations: the source messages are unknown, and may be formed again"
        if self._subject.kind == "fact":
            yield (
                "memory that says the same in other words, such as consolidated texts: look for it"
                " with 'edenmem search', or name words of the fact with --name"
            )
        yield "backups, exports and other copies, and logs of other programs"


def _ids(sessions: Iterable[Session]) -> tuple[str, ...]:
    return tuple(session.id for session in sessions)


#: Kinds of `count_traces` that reappear in live use, without content of the subject.
_ALIVE = frozenset({"cached contexts", "notes of replies"})

#: Kinds of passages, as `Remains.found` names them.
_KINDS = {
    "fact": "facts",
    "previous": "earlier texts of facts",
    "doubt": "quotes or doubts",
    "reflection": "reflections",
    "consolidation": "texts",
    "policy": "policies",
    "audit": "audit entries",
    "formation": "records of formations",
    "context": "cached contexts",
}


def find_remains(store: Store, plan: ForgetPlan, kept: Set[tuple[str, str]]) -> Remains:
    """Read every stored text after a forgetting, and return what is left of the subject.

    ``kept`` are type and ID of memory that was kept by decision, and may name the subject.
    """
    names, derived = names_of(plan.subject), frozenset(plan.derived)
    found = Counter(count_traces(store, plan.traces, plan.derived))
    texts, unreadable = 0, list[Passage]()
    for passage in walk_passages(store):
        if passage.kind == "unreadable":
            unreadable.append(passage)
            continue
        texts += 1
        is_context = passage.kind == "context"
        if passage.target_id in derived and not is_context:
            found["derived texts"] += 1
        elif (passage.target_type, passage.target_id) in kept or (is_context and kept):
            continue  # contexts may show kept memory
        elif names.are_in(passage.text):
            found[f"names in {_KINDS.get(passage.kind, passage.kind)}"] += 1
    return Remains(
        texts=texts,
        found=tuple(f"{found[kind]:,} {kind}" for kind in sorted(found.keys() - _ALIVE)),
        unreadable=tuple(name_concerned(plan.subject, plan.traces, unreadable)),
    )


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
    named = {"--user": user, "--session": session, "--group": group}
    given = [option for option, value in named.items() if value]
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
            return _user(store, resolver, user, of.id if of else None, names)
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
        text = user or session or group or ""
        known = _find_forgetting(store, text, ["user", "session", "group"])
        if known is None:
            raise
        return Subject(kind=known.kind, known_id=known.id, names=_once((text.strip(), *names)))
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


def _user(
    store: Store, resolver: Resolver, text: str, agent_id: str | None, names: Sequence[str]
) -> Subject:
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
            fact_id = resolver.fact(reference).id
        except NotFoundError:
            fact_id = reference if _is_recorded(store, reference) else ""
            if known is None and not fact_id:
                if any(
                    one.kind == "fact" and one.closed_at is None
                    for one in store.erasure.forgettings()
                ):  # another prefix does not find it
                    raise NotFoundError(
                        f"fact not found: {reference!r}; an erasure of facts was interrupted",
                        hint="to finish it, run its command again, with the same IDs",
                    ) from None
                raise
        if known is not None and block("fact", fact_id or reference) not in known.blocks:
            if fact_id and known.closed_at is not None:
                raise UsageError(
                    f"{reference!r} is a prefix of an erased fact, and now also of another one",
                    hint=f"name the fact by its full ID: {fact_id}",
                )
            known_id = known.id
        else:
            found[fact_id or reference] = None
    traces, texts = trace_facts(store, found)
    return Subject(
        kind="fact",
        agent_id=traces.agents[0] if len(traces.agents) == 1 else None,
        facts=tuple(found),
        references=_once(references),
        names=_once((*texts, *names)),
        texts=tuple(text for text in texts if text not in names),
        known_id=known_id,
    )


def _is_recorded(store: Store, fact_id: str) -> bool:
    """Check whether history or log have entries of a fact, which may hold its text."""
    if not is_id(fact_id):
        return False
    entries = store.log.audit(target_id=fact_id)
    return bool(store.history.versions("fact", fact_id)) or any(
        entry.target_type == "fact" for entry in entries
    )


def _has_memory_left(store: Store, session_id: str) -> bool:
    """Check whether a deleted session still has memory."""
    if not is_id(session_id):
        return False
    scopes = [Scope.session(agent_id, session_id) for agent_id in store.host.find_agent_ids()]
    reflections = store.memory.reflections(scopes, limit=1)
    return next(iter(reflections), None) is not None or bool(store.memory.consolidations(scopes))


def _find_forgetting(store: Store, text: str, kinds: Collection[SubjectKind]) -> Forgetting | None:
    """Return the forgetting of a subject with this former name."""
    called = block("called", text.strip().casefold())
    found = store.erasure.forgettings()
    return next((one for one in found if called in one.blocks and one.kind in kinds), None)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name.strip()))


_KIND = "formations (emptied)"
#: Maximum attempts while workers claim messages.
_TRIES = 5


def count_traces(store: Store, traces: Traces, derived: Sequence[str]) -> dict[str, int]:
    """Count what a forgetting removes, by kind; kinds with a count of 0 are left out."""
    counts = Counter(dict.fromkeys(KINDS.values(), 0))
    for document in store.walk.documents(tuple(KINDS), Selection(traces=traces)):
        match document.record:
            case Consolidation(version=0) | StoredEntry(before=None, after=None, reason=""):
                pass  # a buffer without a text, or an emptied entry
            case _:
                counts[KINDS[document.kind]] += 1
    counts.update(store.erasure.count_traces(traces, derived))
    counts[_KIND] = sum(1 for _ in _find_unsettled(store, traces))
    return dict(+counts)


def settle_formations(store: Store, traces: Traces, *, at: datetime) -> dict[str, int]:
    """Finish and empty the formations of a subject; return how many, by the kind of this count.

    First of all the messages are marked, which keeps their words out of searches for facts.
    Recorded changes are applied unless blocked. Claims are revoked, so no worker can record an
    outcome. Messages without a formation get a finished one.
    """
    store.erasure.mark_messages(traces)  # an interrupted run may not find them again
    settled = 0
    for formation, mine in _find_unsettled(store, traces):
        _settle(store, formation, mine, at)
        settled += 1
    for session_id in (*traces.own, *traces.shared):
        session = store.host.session(session_id)
        agents = session.agents if session is not None else traces.agents
        for agent_id in agents if traces.agent_id is None else (traces.agent_id,):
            _count_as_done(store, session_id, agent_id, _messages_of(store, traces, session_id), at)
        store.formations.advance_cursor(session_id, past_replies=True)
    return {_KIND: settled}


def _find_unsettled(store: Store, traces: Traces) -> Iterator[tuple[Formation, set[str] | None]]:
    """Yield formations with content, or that may still continue, and the subject's messages."""
    for session_id in (*traces.own, *traces.shared):
        mine = _messages_of(store, traces, session_id)
        found = store.formations.list_formations(session_id=session_id, agent_id=traces.agent_id)
        for formation in list(found):
            ids = (*formation.message_ids, *formation.superseded_message_ids)
            if not is_settled(formation) and (mine is None or not mine.isdisjoint(ids)):
                yield formation, mine


def _messages_of(store: Store, traces: Traces, session_id: str) -> set[str] | None:
    """Return the subject's messages in a session; None for all."""
    if session_id in traces.own:
        return None
    return {*traces.messages, *store.host.find_message_ids(traces.accounts, [session_id])}


def _settle(store: Store, known: Formation, mine: set[str] | None, at: datetime) -> None:
    found: Formation | None = known
    while found is not None and not is_settled(found):
        if found.status is FormationStatus.RECORDED:
            recorded = store.formations.formation(found.id)
            if recorded is None:
                return
            found, _ = apply_recorded(store, recorded, now=at, is_checked=True)
        elif store.formations.move(found, settle(found, mine, at)):
            return
        else:
            found = store.formations.formation(found.id)


def _count_as_done(
    store: Store, session_id: str, agent_id: str, mine: set[str] | None, at: datetime
) -> None:
    """Give pending messages a finished, empty formation."""
    ids = None if mine is None else list(mine)
    messages = list(store.host.messages(session_id, ids=ids)) if mine != set() else []
    for _ in range(_TRIES):
        known = list(store.formations.list_formations(session_id=session_id, agent_id=agent_id))
        formed = {id for formation in known for id in formation.message_ids}
        waiting = [message for message in messages if message.id not in formed]
        if not waiting:
            return
        last = max((formation.seq for formation in known), default=0)
        done = finished_record(session_id, agent_id, last + 1, waiting, at)
        if store.formations.claim(done):
            return
    raise ConflictError(
        f"other workers keep claiming messages of session {session_id}",
        hint="stop the workers, or try again",
    )
