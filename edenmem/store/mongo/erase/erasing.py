"""Removing the traces of a subject from the database, in bulk and on indexes.

Without transactions, the order makes it safe to be cut off: what was derived from something goes
before it, since it is found through it; a reflection leaves its buffer before it is deleted; each
step finds what is left of it when it is taken again. A change of somebody else that was begun but
not finished is seen by its pending audit entry: that is waited for, not erased around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError, ScopeError, UsageError
from edenmem.models.forgetting import Compaction, Traces
from edenmem.models.formation import Formation, FormationStatus, Trigger
from edenmem.models.ids import as_utc, new_id, utc_now
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.filters import (
    Filter,
    build_consolidated_filters,
    build_consolidated_key,
    fact_fields,
    group_filters,
    id_parts,
    object_id,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.formations.formations import formation_document
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.mongo.walk.passages import CONTEXT_FIELDS, PassagesPart
from edenmem.store.mongo.walk.tracing import (
    FULL,
    UNSETTLED,
    TracingPart,
    account_filters,
    context_filters,
    ids_of_formation,
    key_filters,
    source_filters,
)

_AT_ONCE = 500
#: Kinds of what is removed, as `Store.count_traces` names them too.
VERSIONS, ENTRIES = "versions in history", "audit entries (emptied)"
_TRIES = 5
_BEYOND = (
    "the server's oplog and journal, until they are overwritten",
    "backups and snapshots of the cluster (Atlas keeps its own), and exports",
    "search indexes on Atlas, for the seconds until they have followed",
    "memory of v1 that the platform keeps (memory_user, memory_agent, memory_sessions)",
    "files of the server, whose space is reused and not overwritten",
)

#: The platform's fields on a session that hold memory, or say when it was put there.
_CACHES = (
    "cached_memory_context",
    "memory_context_timestamp",
    "cached_episode_memories",
    "episode_memories_timestamp",
    "agent_memory_timestamp",
    "user_memory_timestamp",
)
_CURSOR_FIELD = "last_memory_message_id"
_CURSOR = f"memory_context.{_CURSOR_FIELD}"
_UNDER_WAY = ("claimed", "released", "failed")


class ErasingPart(TracingPart, PassagesPart):
    """Removes what `TracingPart` finds."""

    # -- formations --------------------------------------------------------------------------

    def settle_formations(self, traces: Traces, *, at: datetime) -> int:
        """See `edenmem.store.protocol.erasure.Erasing.settle_formations`."""
        settled = 0
        for session_id in traces.own:
            settled += self._settle(session_id, traces.agent_id, None, at)
        for session_id in traces.shared:
            settled += self._settle(session_id, traces.agent_id, traces.accounts, at)
        return settled

    def _settle(
        self, session_id: str, agent_id: str | None, accounts: Sequence[str] | None, at: datetime
    ) -> int:
        said = self._find_said_messages(session_id, accounts)
        of_session: Filter = {"session_id": object_id(session_id)}
        if agent_id is not None:
            of_session["agent_id"] = object_id(agent_id)
        settled = 0
        for document in self._formations.find({**of_session, "$or": UNSETTLED}):
            ids = document.get("message_ids") or []
            if accounts is not None and said.keys().isdisjoint(ids_of_formation(document)):
                continue
            if document["status"] == "recorded":
                self.apply_formation(str(document["_id"]), now=at)
            fields: Document = {
                "status": "superseded" if document["status"] == "superseded" else "applied",
                "decisions": [],
                "error": None,
                "worker": None,
                "lease_until": None,
                "not_before": None,
                "updated_at": at,
                "updatedAt": utc_now(),
            }
            if accounts is not None and document["status"] in _UNDER_WAY:
                # The other people's messages of a claim that is withdrawn are free again.
                fields["message_ids"] = [key for key in ids if key in said]
            self._formations.update_one(
                {"_id": document["_id"]},
                {"$set": fields, "$unset": {"unfinished": "", "changes": ""}},
            )
            settled += 1
        settled += self._count_as_done(session_id, agent_id, said, at)
        self._pass_over(session_id, said, accounts)
        return settled

    def _count_as_done(
        self, session_id: str, agent_id: str | None, said: dict[Any, Document], at: datetime
    ) -> int:
        """Give the messages that wait for a formation one that is done and holds nothing."""
        session = self._sessions.find_one({"_id": object_id(session_id)}, {"agents": 1})
        agents = codec.text_ids(session.get("agents")) if session else ()
        made = 0
        for agent in agents if agent_id is None else (agent_id,):
            for _ in range(_TRIES):
                done = self._build_formation(session_id, agent, said, at)
                if done is None:
                    break
                try:
                    self._formations.insert_one(formation_document(done))
                except DuplicateKeyError:  # somebody claimed some of them meanwhile
                    continue
                made += 1
                break
            else:
                raise ConflictError(
                    f"others keep claiming messages of the session {session_id}",
                    hint="stop the workers, or try again",
                )
        return made

    def _build_formation(
        self, session_id: str, agent_id: str, said: dict[Any, Document], at: datetime
    ) -> Formation | None:
        pair = {"session_id": object_id(session_id), "agent_id": object_id(agent_id)}
        formed: set[Any] = set()
        last = 0
        for document in self._formations.find(pair, {"message_ids": 1, "seq": 1}):
            formed.update(document.get("message_ids") or ())
            last = max(last, codec.number(document.get("seq")))
        waiting = [document for key, document in said.items() if key not in formed]
        if not waiting:
            return None
        return Formation(
            id=new_id(at),
            session_id=session_id,
            agent_id=agent_id,
            seq=last + 1,
            status=FormationStatus.APPLIED,
            trigger=Trigger.FORCED,
            message_ids=tuple(str(document["_id"]) for document in waiting),
            last_message_at=codec.read_creation_time(waiting[-1]),
            created_at=at,
            updated_at=at,
            cursor_moves=(),
        )

    def _pass_over(
        self, session_id: str, said: dict[Any, Document], accounts: Sequence[str] | None
    ) -> None:
        """Move the platform's progress past what was said, never backwards.

        The platform has one progress for a session. It stops before the next message of another
        person, so that the platform skips as little of what others said as it can.
        """
        if not said:
            return
        newest = _place(next(reversed(said.values())))
        for _ in range(_TRIES):
            key = {"_id": object_id(session_id)}
            session = self._sessions.find_one(key, {_CURSOR: 1})
            cursor = sub_document((session or {}).get("memory_context")).get(_CURSOR_FIELD)
            known = self._messages.find_one({"_id": cursor}, {"createdAt": 1}) if cursor else None
            if session is None or (known is not None and _place(known) >= newest):
                return
            deleted_at = None
            if isinstance(cursor, ObjectId) and known is None:
                deleted_at = as_utc(cursor.generation_time)
            last, left = self._end_of_replies(session_id, newest, deleted_at, accounts)
            fields = {_CURSOR_FIELD: last, "messages_since_memory_formation": left}
            if not left:
                fields["weighted_tokens_since_memory_formation"] = 0
            self.note_cursor_move(session_id, newest[1], last, cursor)
            if self._set_in_context(session_id, "$set", fields, where={_CURSOR: cursor}):
                return
        raise ConflictError(
            f"the platform keeps moving its progress of the session {session_id}",
            hint="run the same command again",
        )

    def _end_of_replies(
        self,
        session_id: str,
        newest: tuple[datetime, str],
        deleted_at: datetime | None,
        accounts: Sequence[str] | None,
    ) -> tuple[Any, int]:
        """Find the last message before one of another person that follows ``newest``, and count
        those behind it.

        ``deleted_at`` is the time of a deleted message to which the platform had come: what came
        before it counts as formed. The platform itself would form the whole session again.
        """
        formed_until = max(newest[0], deleted_at or newest[0])
        last, left = object_id(newest[1]), 0
        for document in self._messages.find(
            {"session": object_id(session_id), "createdAt": {"$gte": newest[0]}},
            {"createdAt": 1, "role": 1, "sender": 1, "trigger": 1},
            sort=(("createdAt", 1), ("_id", 1)),
        ):
            is_of_others = (
                _place(document) > newest
                and codec.read_creation_time(document) > formed_until
                and document.get("role") == "user"
                and not document.get("trigger")
                and str(document.get("sender")) not in (accounts or ())
            )
            if left or is_of_others:
                left += 1
            else:
                last = document["_id"]
        return last, left

    # -- memory ------------------------------------------------------------------------------

    def erase(self, traces: Traces, derived: Sequence[str], *, at: datetime) -> dict[str, int]:
        """See `edenmem.store.protocol.erasure.Erasing.erase`.

        Raises:
            ConflictError: somebody is changing the same memory at this moment.
        """
        removed: Counter[str] = Counter()
        for reflection_id in derived:
            found = self._reflections.find({"_id": object_id(reflection_id)})
            self._erase_reflections("derived reflections", list(found), removed)
        for filter in (*group_filters(traces.scopes, fact_fields), *source_filters(traces.sources)):
            for page in self._pages(self._facts, filter):
                self._erase_facts(page, removed)
        for filter in (
            *group_filters(traces.scopes, owner_fields),
            *source_filters(traces.sources),
        ):
            for page in self._pages(self._reflections, filter):
                self._erase_reflections("reflections", page, removed)
        for filter in build_consolidated_filters(traces.scopes):
            removed["texts"] += self._consolidated.delete_many(filter)
        for part in id_parts(str(policy_id(scope)) for scope in traces.scopes):
            removed["policies"] += self._policies.delete_many({"_id": {"$in": part}})
        for key in key_filters(traces.scopes):
            removed[VERSIONS] += self._history.delete_many(key)
            removed[ENTRIES] += self._empty_audit(key)
        for key in account_filters(traces):
            removed[ENTRIES] += self._empty_audit(key)
        removed["cached contexts"] += self._drop_contexts(traces)
        return {kind: number for kind, number in removed.items() if number}

    def _pages(self, collection: Collection, filter: Filter) -> Iterator[list[Document]]:
        """What is left, until nothing is."""
        while page := list(collection.find(filter, codec.NO_VECTOR, limit=_AT_ONCE)):
            yield page

    def _erase_facts(self, documents: Sequence[Document], removed: Counter[str]) -> None:
        ids = [document["_id"] for document in documents]
        self._forget_what_was(documents, removed)
        removed["facts"] += self._facts.delete_many({"_id": {"$in": ids}})
        self._touch(_homes(map(codec.fact_from, documents)))

    def _erase_reflections(
        self, kind: str, documents: Sequence[Document], removed: Counter[str]
    ) -> None:
        by_scope: dict[Scope, list[Any]] = {}
        for document in documents:
            for scope in _homes([codec.reflection_from(document)]):
                both = (document["_id"], str(document["_id"]))  # stored as text, too
                by_scope.setdefault(scope, []).extend(both)
        for scope, ids in by_scope.items():
            self._consolidated.update_one(
                build_consolidated_key(scope),
                {"$pull": {"unabsorbed_ids": {"$in": ids}}, "$set": {"updatedAt": utc_now()}},
            )
        self._forget_what_was(documents, removed)
        keys = [document["_id"] for document in documents]
        removed[kind] += self._reflections.delete_many({"_id": {"$in": keys}})
        self._touch(by_scope)

    def _forget_what_was(self, documents: Sequence[Document], removed: Counter[str]) -> None:
        """Remove the history of targets, and empty what audit entries hold of them."""
        ids = [document["_id"] for document in documents]
        for kind in ("fact", "reflection"):
            removed[VERSIONS] += self._history.delete_many(
                {"target_type": kind, "target_id": {"$in": ids}}
            )
        removed[ENTRIES] += self._empty_audit({"target_id": {"$in": ids}})

    def _empty_audit(self, key: Filter) -> int:
        emptied = {"before": None, "after": None, "reason": "", "updatedAt": utc_now()}
        return self._audit.update_many({**key, **FULL}, {"$set": emptied})

    def _drop_contexts(self, traces: Traces) -> int:
        dropped = 0
        fields = {f"memory_context.{field}": "" for field in CONTEXT_FIELDS}
        fields |= {f"edenmem_contexts.{agent}": "" for agent in traces.agents}
        for filter in context_filters(traces.agents):
            dropped += self._sessions.update_many(filter, {"$unset": fields})
        for part in id_parts((*traces.own, *traces.shared)):
            self._sessions.update_many(
                {"_id": {"$in": part}, "memory_context": {"$type": "object"}},
                {"$unset": {f"memory_context.{field}": "" for field in _CACHES}},
            )
        return dropped

    # -- the rest ----------------------------------------------------------------------------

    def erase_messages(self, traces: Traces) -> dict[str, int]:
        """See `edenmem.store.protocol.erasure.Erasing.erase_messages`."""
        raise UsageError(
            "conversations in MongoDB are the platform's, and are not removed from here",
            hint="leave out --messages, and remove them on the platform",
        )

    def compact(self) -> Compaction:
        """See `edenmem.store.protocol.erasure.Erasing.compact`. Nothing: the files are the
        server's."""
        return Compaction(beyond=_BEYOND)


def _place(document: Document) -> tuple[datetime, str]:
    return codec.read_creation_time(document), str(document["_id"])


def _homes(owned: Any) -> Iterator[Scope]:
    """The scopes of facts or reflections; those of others' documents that have none left out."""
    for one in owned:
        try:
            yield one.home
        except ScopeError:
            continue
