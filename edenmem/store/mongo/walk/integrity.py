"""What a database says of its own integrity, and mending what is only derived in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from edenmem.models.ids import utc_now
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.collections import FACT_KEY, FORMATIONS, MEMORY_INDEXES
from edenmem.store.mongo.core.filters import (
    IN_LIMIT,
    Filter,
    build_consolidated_filters,
    build_consolidated_key,
    id_parts,
    object_id,
)
from edenmem.store.mongo.host.host import HostPart
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.mongo.indexes.fact_key import fact_keys, has_keys
from edenmem.store.mongo.search.staleness import StalenessPart
from edenmem.store.mongo.walk.records import EVERYTHING, RecordsPart, readable_fact
from edenmem.store.protocol.store import batched

_LIVING: Filter = {"deleted": {"$ne": True}}
_ONLY_ID = {"_id": 1}
#: Where contexts are kept for agents other than a session's first.
_CONTEXTS = "edenmem_contexts"
_MESSAGES_KEY = next(i for i in MEMORY_INDEXES if i.name == "edenmem_formation_messages")


class IntegrityPart(RecordsPart, StalenessPart, HostPart):
    """Looks at everything, and writes nothing but what is derived."""

    # -- the database ------------------------------------------------------------------------

    def file_faults(self) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.file_faults`: that is the server's."""
        return iter(())

    def mend_schema(self) -> int:
        """See `edenmem.store.protocol.integrity.Integrity.mend_schema`: there is none."""
        return 0

    # -- looking things up -------------------------------------------------------------------

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """See `edenmem.store.protocol.integrity.Integrity.present`."""
        match kind:
            case "agent":
                return self._with_ids(self._users, ids, {"type": "agent", **_LIVING})
            case "person":
                return self._persons(ids)
            case "session":
                return self._with_ids(self._sessions, ids, _LIVING)
            case "group":
                groups = list(dict.fromkeys(ids))
                living = {"group_id": {"$in": groups}, **_LIVING}
                return set(self._sessions.distinct("group_id", living))
            case "message":
                return self._with_ids(self._messages, ids)
            case "reflection":
                return self._with_ids(self._reflections, ids)
            case "consolidation":
                return self._with_ids(self._consolidated, ids)

    def _with_ids(
        self, collection: Collection, ids: Sequence[str], condition: Filter | None = None
    ) -> set[str]:
        filters = [{"_id": {"$in": part}, **(condition or {})} for part in id_parts(ids)]
        return {str(found["_id"]) for found in self._find_all(collection, filters, _ONLY_ID)}

    def _persons(self, ids: Sequence[str]) -> set[str]:
        person: Filter = {"type": "user", **_LIVING}
        found = self._with_ids(self._users, ids, person)
        # Few have no account of that very id; those are looked for among all others' people.
        aliases = [
            {**person, "eden_user_id": {"$in": [*part, *map(str, part)]}}
            for part in id_parts(each for each in ids if each not in found)
        ]
        for account in self._find_all(self._users, aliases, {"eden_user_id": 1}):
            found.add(str(account["eden_user_id"]))
        return found

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """See `edenmem.store.protocol.integrity.Integrity.people_of`."""
        filters = [{"_id": {"$in": part}} for part in id_parts(session_ids)]
        documents = list(self._find_all(self._sessions, filters, {"users": 1, "agents": 1}))
        wrote = self._run_all(
            [partial(self.senders, str(document["_id"])) for document in documents]
        )
        accounts: dict[str, set[str]] = {}
        for document, senders in zip(documents, wrote, strict=True):
            agents = codec.text_ids(document.get("agents"))
            listed = codec.text_ids(document.get("users"))
            accounts[str(document["_id"])] = {*listed, *senders}.difference(agents)
        everyone = [account for those in accounts.values() for account in those]
        known = self.users_by_ids(everyone)
        return {
            session_id: frozenset(known[a].person_id if a in known else a for a in those)
            for session_id, those in accounts.items()
        }

    def buffers(self, scopes: Sequence[Scope]) -> dict[Scope, tuple[str, ...]]:
        """See `edenmem.store.protocol.integrity.Integrity.buffers`."""
        wanted = frozenset(scopes)
        found: dict[Scope, tuple[str, ...]] = {}
        for document in self._find_all(self._consolidated, build_consolidated_filters(scopes)):
            if (home := codec.find_text_scope(document)) in wanted:
                found[home] = codec.text_ids(document.get("unabsorbed_ids"))
        return found

    def list_versions(self, target_type: str, ids: Sequence[str]) -> dict[str, dict[int, str]]:
        """See `edenmem.store.protocol.integrity.Integrity.list_versions`."""
        found: dict[str, dict[int, str]] = {}
        filters = [
            {"target_type": target_type, "target_id": {"$in": part}} for part in id_parts(ids)
        ]
        seen = {"target_id": 1, "version": 1, "action": 1}
        for document in self._find_all(self._history, filters, seen):
            versions = found.setdefault(str(document["target_id"]), {})
            versions[codec.number(document.get("version"))] = codec.text(document.get("action"))
        return found

    # -- what unique keys rule out -----------------------------------------------------------

    def twins(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.twins`."""
        if fact_keys(self._facts.indexes()).protects:
            return
        match = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        fields = [field for field, _ in FACT_KEY.keys]
        pipeline: list[dict[str, Any]] = [
            {"$match": match},
            {
                "$group": {
                    "_id": {field: f"${field}" for field in fields},
                    "count": {"$sum": 1},
                }
            },
            {"$match": {"count": {"$gt": 1}}},
        ]
        for group in self._facts.aggregate(pipeline):
            same = {field: group["_id"].get(field) for field in fields}
            documents = self._facts.find(same, codec.NO_VECTOR)
            facts = [fact for found in documents if (fact := readable_fact(found)) is not None]
            facts.sort(key=_age)
            for fact in facts[1:]:
                yield Finding(
                    target_type="fact",
                    target_id=fact.id,
                    detail=f"says the same as {facts[0].id}, which is older",
                    agent_id=fact.agent_id,
                    scope=fact.home,
                    text=fact.content,
                    related=(facts[0].id,),
                )

    def find_shared_messages(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.find_shared_messages`."""
        if has_keys(self._collection(FORMATIONS).indexes(), _MESSAGES_KEY):
            return
        match = {} if agent_id is None else {"agent_id": object_id(agent_id)}
        owner = {"agent": "$agent_id", "session": "$session_id", "message": "$message_ids"}
        pipeline: list[dict[str, Any]] = [
            {"$match": match},
            {"$project": {"session_id": 1, "agent_id": 1, "message_ids": 1}},
            {"$unwind": "$message_ids"},
            {"$group": {"_id": owner, "in": {"$push": "$_id"}, "count": {"$sum": 1}}},
            {"$match": {"count": {"$gt": 1}}},
        ]
        for group in self._formations.aggregate(pipeline):
            formations = tuple(sorted(str(key) for key in group["in"]))
            yield Finding(
                target_type="message",
                target_id=str(group["_id"]["message"]),
                detail=f"is in the formations {', '.join(formations)}",
                agent_id=str(group["_id"]["agent"]),
                related=formations,
            )

    def find_lost_progress(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.find_lost_progress`."""
        told: set[Any] = set()
        fields = {"session_id": 1, "agent_id": 1, "status": 1, "last_message_at": 1}
        formations = self._formations.find(EVERYTHING, fields, sort=[("_id", 1)])
        for page in batched(formations, IN_LIMIT):
            applied = [each for each in page if each.get("status") == "applied"]
            keys = {str(each["session_id"]) for each in applied}
            seen = {"agents": 1, "memory_context.last_memory_message_id": 1}
            found = self._find_all(
                self._sessions, [{"_id": {"$in": part}} for part in id_parts(keys)], seen
            )
            sessions = {session["_id"]: session for session in found}
            reached = self._read_cursor_times(sessions.values())
            for formation in applied:
                key, agent = formation["session_id"], str(formation["agent_id"])
                if key in told or key not in sessions or agent_id not in (None, agent):
                    continue
                first = codec.text_ids(sessions[key].get("agents"))[:1] == (agent,)
                if first and reached[key] < codec.require_moment(formation, "last_message_at"):
                    told.add(key)
                    yield Finding(
                        target_type="session",
                        target_id=str(key),
                        detail="the platform's progress is before what was formed or forgotten",
                        agent_id=agent,
                        related=(str(formation["_id"]),),
                    )

    def _read_cursor_times(self, sessions: Iterable[Document]) -> dict[Any, datetime]:
        """The time of the message to which the platform has come in each session."""
        cursors = {
            session["_id"]: sub_document(session.get("memory_context")).get(
                "last_memory_message_id"
            )
            for session in sessions
        }
        filters = [
            {"_id": {"$in": part}} for part in id_parts(str(key) for key in cursors.values() if key)
        ]
        found = self._find_all(self._messages, filters, {"createdAt": 1})
        times = {message["_id"]: codec.read_creation_time(message) for message in found}
        return {
            key: times.get(cursor) or codec.read_creation_time({"_id": cursor})
            for key, cursor in cursors.items()
        }

    # -- what is derived ---------------------------------------------------------------------

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.vector_faults`."""
        for agent in self._agents_with_facts(agent_id):
            for model in self._models_of(agent):
                if model is None:
                    continue
                of_model = {"embedding_model": model, "agent_id": agent}
                for document, has_one in self._unfit(of_model, None):
                    if not has_one:
                        yield _without_vector(document, model)

    def finish_absorbing(self, scope: Scope) -> int:
        """See `edenmem.store.protocol.integrity.Integrity.finish_absorbing`."""
        document = self._consolidated.find_one(build_consolidated_key(scope))
        text = None if document is None else codec.consolidation_from(document)
        if text is None:
            return 0
        at = text.last_consolidated_at or text.updated_at or utc_now()
        marked = 0
        for part in id_parts(text.absorbed_ids):
            marked += self._reflections.update_many(
                {"_id": {"$in": part}, "absorbed": {"$ne": True}},
                {
                    "$set": {
                        "absorbed": True,
                        "absorbed_at": at,
                        "consolidated_into": object_id(text.id),
                        "updatedAt": utc_now(),
                    }
                },
            )
        return marked

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        """See `edenmem.store.protocol.integrity.Integrity.drop_vectors`."""
        fields = {"embedding": "", "embedding_model": ""}
        return sum(
            self._facts.update_many({"_id": {"$in": part}}, {"$unset": fields})
            for part in id_parts(fact_ids)
        )

    def stray_contexts(self) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.stray_contexts`."""
        with_contexts = {**EVERYTHING, _CONTEXTS: {"$exists": True}}
        seen = {"agents": 1, "deleted": 1, _CONTEXTS: 1}
        for document in self._sessions.find(with_contexts, seen, sort=[("_id", 1)]):
            kept = document.get(_CONTEXTS)
            agents = () if document.get("deleted") else codec.text_ids(document.get("agents"))
            for agent in kept if isinstance(kept, dict) else ():
                if agent not in agents:
                    yield Finding(
                        target_type="session",
                        target_id=str(document["_id"]),
                        detail="keeps a context although it is gone, or the agent is not in it",
                        agent_id=agent,
                        related=(agent,),
                    )

    def drop_contexts(self, pairs: Sequence[tuple[str, str]]) -> int:
        """See `edenmem.store.protocol.integrity.Integrity.drop_contexts`."""
        return sum(
            self._sessions.update_one(
                {"_id": object_id(session_id)}, {"$unset": {f"{_CONTEXTS}.{agent_id}": ""}}
            )
            for part in batched(pairs, IN_LIMIT)
            for session_id, agent_id in part
        )

    def miscounts(self) -> Iterator[Finding]:
        """See `edenmem.store.protocol.integrity.Integrity.miscounts`: nothing is kept counted."""
        return iter(())

    def recount(self) -> int:
        """See `edenmem.store.protocol.integrity.Integrity.recount`."""
        return 0


def _age(fact: Fact) -> tuple[datetime, str]:
    return fact.formed_at, fact.id


def _without_vector(document: Document, model: str) -> Finding:
    fact = readable_fact(document)
    stored = document.get("embedding")
    how = "zeros in its place" if stored else "none"
    return Finding(
        target_type="fact",
        target_id=str(document["_id"]),
        detail=f"is said to have a vector of {model}, and has {how}",
        agent_id=str(document.get("agent_id") or ""),
        scope=None if fact is None else fact.home,
        text=codec.text(document.get("content")),
    )
