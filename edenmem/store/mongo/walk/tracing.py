"""Where the traces of a subject are in the database, and how many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from edenmem.models.forgetting import Passage, Traces, whole_accounts
from edenmem.models.host import Session
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.filters import (
    Filter,
    build_consolidated_filters,
    fact_fields,
    group_filters,
    id_parts,
    object_id,
    object_ids,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.formations.formations import FormationsPart
from edenmem.store.mongo.host.host import BY_PEOPLE
from edenmem.store.mongo.host.host_codec import session_from
from edenmem.store.protocol.store import batched

#: Scope keys in one ``$in``.
_KEYS = 500

#: What an audit entry has that is emptied. Pending ones are another matter (see `erasing`).
FULL: Filter = {
    "status": {"$ne": "pending"},
    "$or": [{"before": {"$ne": None}}, {"after": {"$ne": None}}, {"reason": {"$ne": ""}}],
}
#: What a formation has that is emptied.
UNSETTLED: list[Filter] = [
    {"status": {"$nin": ["applied", "superseded"]}},
    {"decisions.0": {"$exists": True}},
    {"error": {"$ne": None}},
]


def key_filters(scopes: Iterable[Scope]) -> list[Filter]:
    """Filters for what is kept by the key of its scope."""
    keys = [scope.key for scope in scopes]
    return [{"scope_key": {"$in": part}} for part in batched(keys, _KEYS)]


def account_filters(traces: Traces) -> list[Filter]:
    """Filters for audit entries of accounts: of no scope, they say what somebody is called."""
    parts = id_parts(whole_accounts(traces))
    return [{"target_id": {"$in": part}} for part in parts]


def source_filters(sessions: Sequence[str]) -> list[Filter]:
    """Filters for what comes from these sessions."""
    return [{"session_id": {"$in": part}} for part in id_parts(sessions)]


class TracingPart(FormationsPart):
    """Finds what is to be removed."""

    # -- who, and where ----------------------------------------------------------------------

    def find_agent_ids(self) -> list[str]:
        """See `edenmem.store.protocol.erasure.Erasing.find_agent_ids`."""
        ids = {agent.id for agent in self.agents()}
        ids.update(str(value) for value in self._audit.distinct("agent_id") if value)
        for collection in (self._facts, self._reflections, self._policies):
            ids.update(str(value) for value in collection.distinct("agent_id") if value)
        for kind in ScopeKind:
            found = self._consolidated.distinct("agent_id", {"scope": kind.value})
            ids.update(str(value) for value in found if value)
        return sorted(ids)

    def scopes_of(self, agent_id: str) -> list[Scope]:
        """See `edenmem.store.protocol.erasure.Erasing.scopes_of`."""
        found = {summary.scope for summary in self.scopes(agent_id=agent_id)}
        for kind in ScopeKind:
            # A key is kind:agent or kind:agent:owner; ";" follows ":".
            within = {"scope_key": {"$gte": f"{kind}:{agent_id}", "$lt": f"{kind}:{agent_id};"}}
            for collection in (self._history, self._audit):
                for key in collection.distinct("scope_key", within):
                    owner = str(key).removeprefix(f"{kind}:{agent_id}").removeprefix(":")
                    found.add(Scope(kind, agent_id, owner))
        return sorted(found)

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        """See `edenmem.store.protocol.erasure.Erasing.sessions_of`."""
        if accounts:
            ids = object_ids(accounts)
            sessions = self._messages.distinct("session", {"sender": {"$in": ids}, **BY_PEOPLE})
            wrote = [{"_id": {"$in": part}} for part in id_parts(map(str, sessions))]
            filters: list[Filter] = [{"users": {"$in": ids}}, *wrote]
        elif agent_id is not None:
            filters = [{"agents": object_id(agent_id)}]
        elif group_id:
            filters = [{"group_id": group_id}]
        else:
            return
        seen: set[Any] = set()  # one is found by each of its users, and by who wrote in it
        for document in self._find_all(self._sessions, filters):
            if document["_id"] not in seen:
                seen.add(document["_id"])
                yield session_from(document)

    def names_shown(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        """See `edenmem.store.protocol.erasure.Erasing.names_shown`."""
        names: set[str] = set()
        for session_id in session_ids:
            said = {
                "session": object_id(session_id),
                "role": "user",
                "sender": {"$in": object_ids(accounts)},
            }
            found = self._messages.find(said, {"name": 1})
            names.update(name for each in found if (name := codec.text(each.get("name"))))
        return sorted(names)

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        """See `edenmem.store.protocol.erasure.Erasing.find_message_ids`."""
        for session_id in session_ids:
            yield from map(str, self._find_said_messages(session_id, accounts))

    def authors(self, message_ids: Sequence[str]) -> dict[str, str]:
        """See `edenmem.store.protocol.erasure.Erasing.authors`."""
        fields = {"role": 1, "sender": 1, "trigger": 1}
        found = (
            document
            for part in id_parts(message_ids)
            for document in self._messages.find({"_id": {"$in": part}}, fields)
        )
        return {
            str(document["_id"]): codec.text_id(document.get("sender")) or ""
            if document.get("role") == "user" and not document.get("trigger")
            else ""
            for document in found
        }

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        """See `edenmem.store.protocol.erasure.Erasing.count_conversations`."""
        own = [{"session": object_id(session_id)} for session_id in traces.own]
        shared = [
            {
                "session": object_id(session_id),
                "role": "user",
                "sender": {"$in": object_ids(traces.accounts)},
            }
            for session_id in traces.shared
        ]
        counts = {
            "sessions": len(traces.own),
            "messages": sum(self._messages.count(filter) for filter in own),
            "messages in shared sessions": sum(self._messages.count(filter) for filter in shared),
        }
        return {kind: number for kind, number in counts.items() if number}

    # -- reflections and texts ---------------------------------------------------------------

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        """See `edenmem.store.protocol.erasure.Erasing.find_derived`."""
        filters = [{"propagated_from": {"$in": part}} for part in id_parts(reflection_ids)]
        found = map(codec.reflection_from, self._find_all(self._reflections, filters))
        return list({reflection.id: reflection for reflection in found}.values())

    def trace_reflections(self, traces: Traces) -> Iterator[Reflection]:
        """See `edenmem.store.protocol.erasure.Erasing.trace_reflections`."""
        for document in self._trace(self._reflections, self._reflection_filters(traces)):
            yield codec.reflection_from(document)

    def trace_texts(self, traces: Traces) -> Iterator[Passage]:
        """See `edenmem.store.protocol.erasure.Erasing.trace_texts`."""
        for document in self._trace(self._facts, self._fact_filters(traces)):
            fact = codec.fact_from(document)
            yield passage("fact", fact.id, fact.content, fact.home)
        for reflection in self.trace_reflections(traces):
            yield passage("reflection", reflection.id, reflection.content, reflection.home)
        for document in self._trace(self._consolidated, build_consolidated_filters(traces.scopes)):
            text = codec.consolidation_from(document)
            if text.consolidated_content:
                yield passage("consolidation", text.id, text.consolidated_content, text.home)

    def _fact_filters(self, traces: Traces) -> list[Filter]:
        return [*group_filters(traces.scopes, fact_fields), *source_filters(traces.sources)]

    def _reflection_filters(self, traces: Traces) -> list[Filter]:
        return [*group_filters(traces.scopes, owner_fields), *source_filters(traces.sources)]

    def _trace(self, collection: Collection, filters: Sequence[Filter]) -> Iterator[Document]:
        """What any filter finds, without vectors, each once."""
        seen: set[Any] = set()
        for filter in filters:
            for document in collection.find(filter, codec.NO_VECTOR):
                if document["_id"] not in seen:
                    seen.add(document["_id"])
                    yield document

    # -- counting ----------------------------------------------------------------------------

    def count_traces(self, traces: Traces) -> dict[str, int]:
        """See `edenmem.store.protocol.erasure.Erasing.count_traces`."""

        def count(collection: Collection, filters: Iterable[Filter]) -> int:
            return sum(collection.count(filter) for filter in filters)

        def different(collection: Collection, filters: Sequence[Filter]) -> int:
            found = (collection.find(filter, {"_id": 1}) for filter in filters)
            return len({document["_id"] for documents in found for document in documents})

        keys = key_filters(traces.scopes)
        policies = id_parts(str(policy_id(scope)) for scope in traces.scopes)
        texts = self._trace(self._consolidated, build_consolidated_filters(traces.scopes))
        counts = {
            "facts": different(self._facts, self._fact_filters(traces)),
            "reflections": different(self._reflections, self._reflection_filters(traces)),
            "texts": sum(1 for document in texts if codec.read_version(document)),
            "policies": count(
                self._policies, ({"_id": {"$in": part}, "version": {"$gt": 0}} for part in policies)
            ),
            "versions in history": count(self._history, keys),
            "audit entries (emptied)": count(
                self._audit, ({**key, **FULL} for key in (*keys, *account_filters(traces)))
            ),
            "formations (emptied)": sum(1 for _ in self._find_unsettled(traces)),
            "cached contexts": self._count_contexts(traces.agents),
        }
        return {kind: number for kind, number in counts.items() if number}

    def _find_unsettled(self, traces: Traces) -> Iterator[Document]:
        """The formations that hold something, or may still be gone on with."""
        for session_id in traces.own:
            yield from self._formations.find(
                {**_of(session_id, traces.agent_id), "$or": UNSETTLED}, {"changes": 0}
            )
        for session_id in traces.shared:
            said = self._find_said_messages(session_id, traces.accounts)
            held = {**_of(session_id, traces.agent_id), "$or": UNSETTLED}
            for document in self._formations.find(held, {"changes": 0}) if said else ():
                if not said.keys().isdisjoint(ids_of_formation(document)):
                    yield document

    def _find_said_messages(
        self, session_id: str, accounts: Sequence[str] | None
    ) -> dict[Any, Document]:
        """The messages of a session, or those of the accounts, in order, without contents."""
        filter: Filter = {"session": object_id(session_id)}
        if accounts is not None:
            filter |= {"role": "user", "sender": {"$in": object_ids(accounts)}}
        found = self._messages.find(filter, {"createdAt": 1})
        in_order = sorted(
            found, key=lambda document: (codec.read_creation_time(document), str(document["_id"]))
        )
        return {document["_id"]: document for document in in_order}

    def _count_contexts(self, agents: Sequence[str]) -> int:
        return sum(self._sessions.count(filter) for filter in context_filters(agents))


def ids_of_formation(document: Document) -> list[Any]:
    """The messages that a formation was made from, also if it is superseded."""
    return [*(document.get("message_ids") or ()), *(document.get("superseded_message_ids") or ())]


def context_filters(agents: Sequence[str]) -> list[Filter]:
    """Filters for the sessions of agents that have a cached context: in the platform's field, and
    in ours for an agent that is not the session's first."""
    cached: Filter = {"memory_context.cached_memory_context": {"$gt": ""}}
    first = [{"agents": {"$in": part}, **cached} for part in id_parts(agents)]
    others = [
        {"agents": object_id(agent), f"edenmem_contexts.{agent}": {"$exists": True}}
        for agent in agents
    ]
    return [*first, *others]


def _of(session_id: str, agent_id: str | None) -> Filter:
    agent = {} if agent_id is None else {"agent_id": object_id(agent_id)}
    return {"session_id": object_id(session_id), **agent}


def passage(place: str, id: str, text: str, scope: Scope) -> Passage:
    """The text of a thing of memory itself."""
    return Passage(place=place, id=id, target_type=place, target_id=id, text=text, scope=scope)
