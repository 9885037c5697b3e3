"""Find all memory of a subject: traces, derived reflections, and mentions.

Read-only; all functions block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from edenmem.engine.access.tokens import find_tokens
from edenmem.engine.erasure.facts import trace_facts
from edenmem.engine.erasure.mentions import MentionSurvey, may_concern, names_of
from edenmem.engine.erasure.passages import trace_reflections, walk_traces
from edenmem.engine.erasure.reports import ForgetPlan, name_unreadable
from edenmem.errors import ScopeError
from edenmem.models.backup import RecordKind
from edenmem.models.forgetting import Subject, Traces, block
from edenmem.models.host import Session
from edenmem.models.memory import Held, Reflection, ScopeSummary
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: Maximum number of removed texts to keep for probing.
MOST_FORMER = 200


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
        texts = islice(walk_traces(self._store, traces), MOST_FORMER)
        former = [passage.text for passage in texts]
        derived = self.find_derived(traces)
        agents = {*traces.agents, *(one.agent_id for one in derived)}
        traces = msgspec.structs.replace(traces, agents=tuple(sorted(agents)))
        counts = self._store.erasure.count_traces(traces, [one.id for one in derived])
        if tokens := sum(1 for _ in find_tokens(self._store.tokens, subject)):
            counts["tokens"] = tokens
        names = names_of(subject)
        survey = MentionSurvey(self._store, self._settings, of_facts=subject.kind == "fact")
        mentions = survey.mentions(traces, names, derived)
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
            former=tuple([*(one.content for one in derived), *former][:MOST_FORMER]),
            homes=trace_facts(self._store, traces.facts).homes,
            unreadable=tuple(
                name_unreadable(each)
                for each in survey.unreadable
                if may_concern(subject, traces, each)
            ),
            begun_at=known.begun_at if known is not None and known.closed_at is None else None,
        )

    def blocks(self, plan: ForgetPlan) -> tuple[str, ...]:
        """Return the blocks of later writes: scopes, facts, and sources of memory."""
        traces = plan.traces
        parents = (one.id for one in trace_reflections(self._store, traces))
        return (
            *(block("scope", scope.key) for scope in traces.scopes),
            *(block("session", id) for id in dict.fromkeys((*traces.own, *traces.sources))),
            *(block("reflection", id) for id in (*parents, *plan.derived)),
            *(block("fact", id) for id in traces.facts),
            *(block("message", id) for id in traces.messages),
            *(block("held", id) for id in traces.held),
        )

    # -- traces ------------------------------------------------------------------------------

    def traces(self) -> Traces:
        """Return the places of the subject's traces."""
        if self._subject.kind == "fact":
            return self._of_facts()
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
        accounts = _accounts(subject)
        own: list[Session] = []
        shared: list[Session] = []
        for session in store.host.sessions_of(accounts=accounts):
            if subject.agent_id in (None, *session.agents):
                (own if self._is_alone(session) else shared).append(session)
        agents = store.host.find_agent_ids() if subject.agent_id is None else [subject.agent_id]
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

    def _summaries(self, accounts: Sequence[str]) -> Iterator[ScopeSummary]:
        yield from self._store.memory.scopes(agent_id=self._subject.agent_id, user_ids=accounts)

    def _is_alone(self, session: Session) -> bool:
        """Check that all participants of a session are accounts of the user."""
        accounts = {*_accounts(self._subject)}
        people = {*session.users, *self._store.host.senders(session.id)} - {*session.agents}
        return people <= accounts

    def _talks(self, sessions: Iterable[Session]) -> Iterator[Scope]:
        for session in sessions:
            for agent_id in session.agents:
                if self._subject.agent_id in (None, agent_id):
                    yield Scope.session(agent_id, session.id)

    def _of_session(self) -> Traces:
        session_id = self._subject.owner
        agents = self._store.host.find_agent_ids()
        session = self._store.host.session(session_id)
        return Traces(
            scopes=tuple(Scope.session(agent, session_id) for agent in agents),
            sources=(session_id,),
            own=(session_id,),
            agents=session.agents if session is not None else (),
        )

    def _of_group(self) -> Traces:
        agent_id = self._subject.agent_id
        if agent_id is None:
            raise ScopeError("forgetting a group requires an agent")
        sessions = [
            session
            for session in self._store.host.sessions_of(group_id=self._subject.owner)
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
            raise ScopeError("no agent is specified")
        return Traces(
            scopes=tuple(self._store.memory.scopes_of(agent_id)),
            own=_ids(self._store.host.sessions_of(agent_id=agent_id)),
            agent_id=agent_id,
            agents=(agent_id,),
        )

    def _of_facts(self) -> Traces:
        facts, store = self._subject.facts, self._store
        known = trace_facts(store, facts)
        return Traces(
            shared=known.sessions,
            facts=known.facts,
            messages=known.messages,
            # The agents of removed facts are unknown: all caches may hold the text.
            agents=known.agents or tuple(sorted(store.host.find_agent_ids())),
        )

    def _find_held(self, traces: Traces) -> Iterator[str]:
        """Yield the items waiting for review that were learned from the subject, or name it.

        They are removed without a question, since they are not memory.
        """
        names, sessions = names_of(self._subject), {*traces.own, *traces.sources}
        said = {
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
                or not said.isdisjoint(held.source_message_ids)
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


def _accounts(subject: Subject) -> tuple[str, ...]:
    """Return a user's accounts; the canonical ID may belong to another user."""
    return subject.accounts or (subject.owner,)


def _ids(sessions: Iterable[Session]) -> tuple[str, ...]:
    return tuple(session.id for session in sessions)
