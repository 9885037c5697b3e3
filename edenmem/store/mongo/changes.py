"""Applying a set of changes: many additions at once, everything else one by one, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.forgetting import keys_of_change
from edenmem.models.ids import utc_now
from edenmem.models.memory import Policy
from edenmem.models.switch import is_beside
from edenmem.store.mongo import codec
from edenmem.store.mongo.collection import Document
from edenmem.store.mongo.collections import BESIDE, OWN
from edenmem.store.mongo.fact_additions import Addition
from edenmem.store.mongo.fact_changes import FactChangesPart
from edenmem.store.mongo.filters import id_parts, object_id, owner_fields, policy_id
from edenmem.store.mongo.forgettings import ForgettingsPart
from edenmem.store.mongo.history import plain
from edenmem.store.mongo.host_codec import agent_from
from edenmem.store.mongo.ledger import Run, result
from edenmem.store.mongo.prepared import PreparedPart, keys_for
from edenmem.store.mongo.reflection_changes import remember, remembers
from edenmem.store.mongo.slots import placed
from edenmem.store.mongo.text_changes import TextChangesPart
from edenmem.store.protocol import batched

#: Additions that are written together.
_ADDITIONS = 1000


class ChangesPart(FactChangesPart, TextChangesPart, PreparedPart, ForgettingsPart):
    """Alters memory: `apply`, and the two kinds of upkeep that are no changes."""

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        """See `edenmem.store.protocol.Store.apply`."""
        run = Run(changes, self._known_entries(change.id for change in changes.changes))
        results: dict[str, ChangeResult] = {}
        todo: list[Change] = []
        for change in changes.changes:
            if run.answers(change):
                results[change.id] = run.answer(change)
            else:
                todo.append(change)
        for found in self._refused_as_forgotten(run, todo):
            results[found.change_id] = found
        todo = [change for change in todo if change.id not in results]
        self._demand_keys(keys_for(todo))
        for found in self._made(run, todo):
            results[found.change_id] = found
        self._finish(run)
        return [results[change.id] for change in changes.changes]

    def _refused_as_forgotten(self, run: Run, changes: Sequence[Change]) -> list[ChangeResult]:
        """The answers to changes that would bring back what is, or was, being forgotten."""
        blocked = self._blocked(changes, run.set.at)
        refused = [c for c in changes if not blocked.isdisjoint(keys_of_change(c))]
        self._withdraw(run, (change.id for change in refused))
        detail = "whose it is was forgotten meanwhile"
        return [result(change, ChangeStatus.CONFLICT, "", detail) for change in refused]

    def _made(self, run: Run, changes: Sequence[Change]) -> Iterator[ChangeResult]:
        for kind, alike in groupby(changes, key=type):
            for batch in batched(alike, _ADDITIONS):
                if kind is AddFact:
                    additions = [Addition(change, change.fact) for change in batch]
                    yield from self._add_facts(run, additions)
                elif kind is AddReflection:
                    yield from self._add_reflections(run, batch)
                else:
                    yield from (self._judged(run, change) for change in batch)

    def _judged(self, run: Run, change: Change) -> ChangeResult:
        """Make one change. One that cannot be made is looked at again if another run of the same
        set began it meanwhile: it may have been made there."""
        found = self._make(run, change)
        if found.status not in (ChangeStatus.CONFLICT, ChangeStatus.MISSING):
            return found
        if self._begun_elsewhere(run, change):
            return run.answer(change) if run.answers(change) else self._judged(run, change)
        if change.id in run.resumed:
            self._withdraw(run, [change.id])
        return found

    def _make(self, run: Run, change: Change) -> ChangeResult:
        match change:
            case ReviseFact():
                return self._revise_fact(run, change)
            case RemoveFact():
                return self._remove_fact(run, change)
            case SetPrivacy():
                return self._set_privacy(run, change)
            case ReviseReflection():
                return self._revise_reflection(run, change)
            case RemoveReflection():
                return self._remove_reflection(run, change)
            case WriteConsolidation():
                return self._write_consolidation(run, change)
            case WritePolicy():
                return self._write_policy(run, change)
            case SetAgentToggles():
                return self._set_toggles(run, change)
            case AddFact() | AddReflection():
                raise TypeError("additions are made together")

    # -- privacy, policies, toggles ----------------------------------------------------------

    def _set_privacy(self, run: Run, change: SetPrivacy) -> ChangeResult:
        collections = {"fact": self._facts, "reflection": self._reflections}
        collection = collections.get(change.target_type)
        if collection is None:
            detail = f"a {change.target_type} cannot be private"
            return result(change, ChangeStatus.CONFLICT, change.target_id, detail)
        key = {"_id": object_id(change.target_id)}
        document = collection.find_one(key, codec.NO_VECTOR)
        try:
            target = _memory_from(change.target_type, document) if document else None
            inside = target is not None and target.home == change.scope
        except ScopeError:
            inside = False
        if target is None or not inside:
            detail = f"there is no such {change.target_type}"
            return result(change, ChangeStatus.MISSING, change.target_id, detail)
        entry = run.entry(
            change,
            target_type=change.target_type,
            target_id=target.id,
            agent_id=target.agent_id,
            scope=change.scope,
            before=plain(target),
            after=plain(msgspec.structs.replace(target, private=change.private)),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        # Not conditional: to set it twice is to set it once.
        collection.update_one(key, {"$set": {"private": change.private, "updatedAt": utc_now()}})
        return run.applied(change, target.id, change.scope)

    def _write_policy(self, run: Run, change: WritePolicy) -> ChangeResult:
        scope = change.policy.home
        key = policy_id(scope)
        document = self._policies.find_one({"_id": key}) or {"_id": key}
        before = codec.policy_from(document)
        version = before.version if before else 0
        policy_key = before.id if before else change.policy.id
        if change.id in run.resumed and remembers(document, change.id):
            return run.already(change, policy_key, scope)
        if version != change.expected_version:
            detail = f"the policy is at version {version}, not {change.expected_version}"
            return result(change, ChangeStatus.CONFLICT, policy_key, detail)
        after = msgspec.structs.replace(
            change.policy, id=policy_key, version=version + 1, updated_at=change.at
        )
        entry = run.entry(
            change,
            target_type="policy",
            target_id=policy_key,
            agent_id=scope.agent_id,
            scope=scope,
            before=plain(before) if before else None,
            after=plain(after),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        if self._policy_written(document, after, change):
            return run.applied(change, policy_key, scope)
        run.resumed.add(change.id)  # by now it may have been made by a twin of this run
        return self._write_policy(run, change)

    def _policy_written(self, document: Document, after: Policy, change: WritePolicy) -> bool:
        now = utc_now()
        update = {
            "$set": {
                **owner_fields(after.home),
                **{name: getattr(after, name) for name in codec.POLICY_FIELDS},
                "policy_id": object_id(after.id),
                "version": after.version,
                "updated_at": after.updated_at,
                "updatedAt": now,
            },
            "$setOnInsert": {"createdAt": now},
            **remember(change.id),
        }
        try:
            return bool(
                self._policies.update_one(
                    codec.version_filter(document), update, upsert=change.expected_version == 0
                )
            )
        except DuplicateKeyError:  # the document was made meanwhile
            return False

    def _set_toggles(self, run: Run, change: SetAgentToggles) -> ChangeResult:
        key = {"_id": object_id(change.agent_id), "type": "agent", "deleted": {"$ne": True}}
        document = self._users.find_one(key)
        if document is None:
            detail = "there is no such agent"
            return result(change, ChangeStatus.MISSING, change.agent_id, detail)
        wanted = {
            "user_memory_enabled": change.user_memory_enabled,
            "agent_memory_enabled": change.agent_memory_enabled,
        }
        fields = {name: value for name, value in wanted.items() if value is not None}
        agent = agent_from(document)
        entry = run.entry(
            change,
            target_type="agent",
            target_id=agent.id,
            agent_id=agent.id,
            scope=None,
            before=plain(agent),
            after=plain(msgspec.structs.replace(agent, **fields)),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        self._users.update_one(key, {"$set": {**fields, "updatedAt": utc_now()}})
        return run.applied(change, agent.id, None)

    # -- upkeep ------------------------------------------------------------------------------

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        """See `edenmem.store.protocol.Store.track_access`."""
        for part in id_parts(fact_ids):
            self._facts.update_many(
                {"_id": {"$in": part}},
                {"$inc": {"access_count": 1}, "$max": {"last_accessed_at": at}},
            )

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, beside: bool = False
    ) -> int:
        """See `edenmem.store.protocol.Store.set_vectors`."""
        written = 0
        for batch in batched(vectors.items(), _ADDITIONS):
            switch = self.vector_switch()
            slot = BESIDE if is_beside(switch, model, must=beside) else OWN
            operations = [
                UpdateOne(
                    {"_id": object_id(fact_id), "hash": hash},
                    {"$set": placed(fields, hash, switch)},
                )
                for fact_id, (hash, vector) in batch
                if (fields := self._vector_fields(vector, model))
            ]
            written += self._facts.bulk(operations)[0]
            self._last_written[slot.index] = [object_id(batch[-1][0])]
        return written

    def _vector_fields(self, vector: bytes, model: str) -> dict[str, Any]:
        return codec.vector_fields(vector, model, self._settings.embedding_storage)


def _memory_from(target_type: str, document: Document) -> Any:
    read = codec.fact_from if target_type == "fact" else codec.reflection_from
    return read(document)
