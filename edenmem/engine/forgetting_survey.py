"""What there is of a subject: where its traces are, what was derived from it, who else names it.

Everything here reads and blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from edenmem.engine.forgetting_reports import ForgetPlan, Mention
from edenmem.engine.mentions import Names
from edenmem.engine.overview import word_limit_of
from edenmem.errors import ScopeError
from edenmem.models.forgetting import Passage, Subject, Traces, block
from edenmem.models.host import Session
from edenmem.models.memory import Reflection, ScopeSummary
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol import Store

#: Texts that are kept in mind for probing.
MOST_FORMER = 200


class Survey:
    """Reads the store for one subject."""

    def __init__(self, store: Store, settings: Settings, subject: Subject) -> None:
        self._store = store
        self._settings = settings
        self._subject = subject

    def plan(self) -> ForgetPlan:
        """All that there is to be said before anything is done."""
        subject, traces = self._subject, self.traces()
        conversations = self._store.count_conversations(traces)
        texts = islice(self._store.trace_texts(traces), MOST_FORMER)
        former = [passage.text for passage in texts]
        derived = self.derived(traces)
        agents = {*traces.agents, *(one.agent_id for one in derived)}
        traces = msgspec.structs.replace(traces, agents=tuple(sorted(agents)))
        counts = self._store.count_traces(traces)
        if derived:
            counts["derived reflections"] = len(derived)
        names = Names(subject.names)
        mentions = self._mentions(traces, names, derived)
        known = next((one for one in self._store.forgettings() if one.id == subject.id), None)
        return ForgetPlan(
            subject=subject,
            traces=traces,
            counts=counts,
            conversations=conversations,
            derived=tuple(one.id for one in derived),
            mentions=tuple(mentions),
            stays=tuple(self._stays()),
            former=tuple([*(one.content for one in derived), *former][:MOST_FORMER]),
            begun_at=known.begun_at if known is not None and known.closed_at is None else None,
        )

    def blocks(self, plan: ForgetPlan) -> tuple[str, ...]:
        """What nothing may bring back: the scopes, what comes from the subject's own sessions, and
        what is derived from its reflections."""
        traces = plan.traces
        parents = (one.id for one in self._store.trace_reflections(traces))
        return (
            *(block("scope", scope.key) for scope in traces.scopes),
            *(block("session", id) for id in dict.fromkeys((*traces.own, *traces.sources))),
            *(block("reflection", id) for id in (*parents, *plan.derived)),
        )

    # -- where -------------------------------------------------------------------------------

    def traces(self) -> Traces:
        """Where the subject's traces are."""
        if self._subject.known_id:
            return Traces()
        match self._subject.kind:
            case "user":
                return self._of_user()
            case "session":
                return self._of_session()
            case "group":
                return self._of_group()
            case "agent":
                return self._of_agent()

    def _of_user(self) -> Traces:
        subject, store = self._subject, self._store
        accounts = subject.accounts or (subject.owner,)
        own: list[Session] = []
        shared: list[Session] = []
        for session in store.sessions_of(accounts=accounts):
            if subject.agent_id in (None, *session.agents):
                (own if self._is_alone(session) else shared).append(session)
        agents = store.known_agents() if subject.agent_id is None else [subject.agent_id]
        whole = [Scope.user(agent, id) for agent in agents for id in accounts]
        with_them = {agent for session in (*own, *shared) for agent in session.agents}
        with_them.update(summary.scope.agent_id for summary in self._summaries(accounts))
        return Traces(
            scopes=(*whole, *self._talks(own)),
            own=_ids(own),
            shared=_ids(shared),
            accounts=accounts,
            agent_id=subject.agent_id,
            agents=tuple(sorted(with_them if subject.agent_id is None else {subject.agent_id})),
        )

    def _summaries(self, accounts: Iterable[str]) -> Iterator[ScopeSummary]:
        for account in accounts:
            yield from self._store.scopes(agent_id=self._subject.agent_id, user_id=account)

    def _is_alone(self, session: Session) -> bool:
        """Whether nobody but the user, whatever the account, takes part in the session."""
        accounts = {*self._subject.accounts, self._subject.owner}
        people = {*session.users, *self._store.senders(session.id)} - {*session.agents}
        return people <= accounts

    def _talks(self, sessions: Iterable[Session]) -> Iterator[Scope]:
        for session in sessions:
            for agent_id in session.agents:
                if self._subject.agent_id in (None, agent_id):
                    yield Scope.session(agent_id, session.id)

    def _of_session(self) -> Traces:
        session_id = self._subject.owner
        agents = self._store.known_agents()
        session = self._store.session(session_id)
        return Traces(
            scopes=tuple(Scope.session(agent, session_id) for agent in agents),
            sources=(session_id,),
            own=(session_id,),
            agents=session.agents if session is not None else (),
        )

    def _of_group(self) -> Traces:
        agent_id = self._subject.agent_id
        if agent_id is None:
            raise ScopeError("a group is forgotten by one agent")
        sessions = [
            session
            for session in self._store.sessions_of(group_id=self._subject.owner)
            if agent_id in session.agents
        ]
        return Traces(
            scopes=(Scope.group(agent_id, self._subject.owner), *self._talks(sessions)),
            own=_ids(sessions),
            agent_id=agent_id,
            agents=(agent_id,),
        )

    def _of_agent(self) -> Traces:
        agent_id = self._subject.agent_id
        if agent_id is None:
            raise ScopeError("no agent is named")
        return Traces(
            scopes=tuple(self._store.scopes_of(agent_id)),
            own=_ids(self._store.sessions_of(agent_id=agent_id)),
            agent_id=agent_id,
            agents=(agent_id,),
        )

    def derived(self, traces: Traces) -> list[Reflection]:
        """Reflections outside of the traces that were derived from what is in them, through
        however many scopes, the farthest first."""
        inside = {one.id for one in self._store.trace_reflections(traces)}
        found: dict[str, Reflection] = {}
        parents = list(inside)
        while parents:
            children = self._store.derived_from(parents)
            new = [one for one in children if one.id not in inside and one.id not in found]
            found.update((one.id, one) for one in new)
            parents = [one.id for one in new]
        return list(reversed(found.values()))

    # -- mentions ----------------------------------------------------------------------------

    def _mentions(
        self, traces: Traces, names: Names, derived: Iterable[Reflection]
    ) -> list[Mention]:
        whole = frozenset(traces.scopes)
        gone = {one.id for one in derived}
        by_source = frozenset(traces.sources)
        found: dict[tuple[str, str], Mention] = {}
        for passage in self._store.passages() if names else ():
            if passage.scope in whole or passage.target_id in gone:
                continue
            contexts = names.contexts(passage.text)
            if contexts and passage.place != "context":
                _note(found, passage, contexts)
        mentions = [self._current(mention) for mention in found.values()]
        kept = [
            mention
            for mention in mentions
            if mention is not None
            and not self._goes_anyway(mention, by_source)
            and not self._is_settled(mention, traces)
        ]
        merged = {mention.key: mention for mention in kept}
        for mention in self._absorbers(traces, derived):
            known = merged.get(mention.key)
            merged[mention.key] = (
                mention
                if known is None
                else msgspec.structs.replace(known, removed=mention.removed)
            )
        return sorted(merged.values(), key=lambda one: (one.target_type, str(one.scope), one.key))

    def _goes_anyway(self, mention: Mention, sources: frozenset[str]) -> bool:
        """Whether it comes from a session whose traces go out of every scope."""
        if not sources or mention.text is None:
            return False
        if mention.target_type == "fact":
            fact = self._store.fact(mention.target_id)
            return fact is not None and fact.session_id in sources
        if mention.target_type == "reflection":
            reflection = self._store.reflection(mention.target_id)
            return reflection is not None and reflection.session_id in sources
        return False

    def _is_settled(self, mention: Mention, traces: Traces) -> bool:
        """Whether it is the record of a formation that is emptied in any case."""
        if mention.target_type != "formation":
            return False
        formation = self._store.formation(mention.target_id)
        if formation is None:
            return False
        if formation.session_id in traces.own:
            return True
        if formation.session_id not in traces.shared:
            return False
        said = self._store.messages(formation.session_id, ids=formation.message_ids)
        return any(message.sender in traces.accounts for message in said)

    def _current(self, mention: Mention) -> Mention | None:
        """The mention with what its target says and may be changed by now."""
        scope = mention.scope
        if mention.target_type == "fact":
            fact = self._store.fact(mention.target_id)
            if fact is not None and mention.text is not None:
                limit = self._settings.formation.fact_words
                return msgspec.structs.replace(mention, version=fact.version, word_limit=limit)
        elif mention.target_type == "reflection":
            reflection = self._store.reflection(mention.target_id)
            if reflection is not None and mention.text is not None:
                return msgspec.structs.replace(
                    mention,
                    version=reflection.version,
                    word_limit=self._settings.formation.reflection_words,
                    fixed=reflection.absorbed,
                )
        elif mention.target_type == "consolidation" and scope is not None:
            text = self._store.consolidations((scope,)).get(scope)
            if text is not None and mention.text is not None:
                limit = word_limit_of(self._settings, scope, None)
                return msgspec.structs.replace(mention, version=text.version, word_limit=limit)
        elif mention.target_type == "policy" and mention.text is not None:
            return msgspec.structs.replace(mention, fixed=True)
        return msgspec.structs.replace(mention, text=None) if mention.copies else None

    def _absorbers(self, traces: Traces, derived: Iterable[Reflection]) -> Iterator[Mention]:
        """The texts of other scopes that absorbed what goes."""
        whole = frozenset(traces.scopes)
        elsewhere = (one for one in self._store.trace_reflections(traces) if one.home not in whole)
        said: dict[Scope, list[str]] = {}
        for reflection in (*derived, *elsewhere):
            if reflection.absorbed:
                said.setdefault(reflection.home, []).append(reflection.content)
        texts = self._store.consolidations(tuple(said))
        for scope, removed in said.items():
            text = texts.get(scope)
            if text is not None and text.consolidated_content:
                yield Mention(
                    target_type="consolidation",
                    target_id=text.id,
                    scope=scope,
                    text=text.consolidated_content,
                    version=text.version,
                    word_limit=word_limit_of(self._settings, scope, None),
                    removed=tuple(removed),
                )

    # -- what stays --------------------------------------------------------------------------

    def _stays(self) -> Iterator[str]:
        yield "audit entries: who did what and when, with ids and without contents"
        yield "what models cost: counts and prices, without names"
        if self._settings.llm.record:
            yield "the file of recorded answers that the setting llm.record names"
        yield "backups, exports and other copies, and logs of other programs"


def _note(
    found: dict[tuple[str, str], Mention], passage: Passage, contexts: tuple[str, ...]
) -> None:
    key = (passage.target_type, passage.target_id)
    mention = found.get(key) or Mention(
        target_type=passage.target_type,
        target_id=passage.target_id,
        scope=passage.scope,
        contexts=contexts,
    )
    if passage.place == passage.target_type and passage.place != "formation":
        said = passage.text if mention.text is None else f"{mention.text}\n{passage.text}"
        mention = msgspec.structs.replace(mention, text=said, contexts=contexts)
    else:
        mention = msgspec.structs.replace(mention, copies=mention.copies + 1)
    found[key] = mention


def _ids(sessions: Iterable[Session]) -> tuple[str, ...]:
    return tuple(session.id for session in sessions)
