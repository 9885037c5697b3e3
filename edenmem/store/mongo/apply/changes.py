"""Applying a set of changes: many additions at once, everything else one by one, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from pymongo import UpdateOne

from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.forgetting import keys_of_change
from edenmem.models.switch import is_beside
from edenmem.store.mongo.apply.account_changes import AccountChangesPart
from edenmem.store.mongo.apply.fact_additions import Addition
from edenmem.store.mongo.apply.fact_changes import FactChangesPart
from edenmem.store.mongo.apply.ledger import Run, result
from edenmem.store.mongo.apply.setting_changes import SettingChangesPart
from edenmem.store.mongo.apply.text_changes import TextChangesPart
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collections import BESIDE, OWN
from edenmem.store.mongo.core.filters import id_parts, object_id
from edenmem.store.mongo.core.prepared import PreparedPart, keys_for
from edenmem.store.mongo.erase.forgettings import ForgettingsPart
from edenmem.store.mongo.search.slots import place_vector
from edenmem.store.protocol.store import batched

#: Additions that are written together.
_ADDITIONS = 1000


class ChangesPart(
    FactChangesPart,
    TextChangesPart,
    SettingChangesPart,
    AccountChangesPart,
    PreparedPart,
    ForgettingsPart,
):
    """Alters memory: `apply`, and the two kinds of upkeep that are no changes."""

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        """See `edenmem.store.protocol.store.Store.apply`."""
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
        if run.refusal is not None:
            raise run.refusal
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
                elif kind in (AddReflection, RestoreReflection):
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
            case RevertConsolidation():
                return self._revert_consolidation(run, change)
            case RepairBuffer():
                return self._repair_buffer(run, change)
            case WritePolicy():
                return self._write_policy(run, change)
            case RemovePolicy():
                return self._remove_policy(run, change)
            case SetAgentToggles():
                return self._set_toggles(run, change)
            case AddAgent() | AddUser():
                return self._add_account_of(run, change)
            case RemoveAgent() | RemoveUser():
                return self._remove_account(run, change)
            case AddFact() | AddReflection() | RestoreReflection():
                raise TypeError("additions are made together")

    # -- upkeep ------------------------------------------------------------------------------

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        """See `edenmem.store.protocol.store.Store.track_access`."""
        for part in id_parts(fact_ids):
            self._facts.update_many(
                {"_id": {"$in": part}},
                {"$inc": {"access_count": 1}, "$max": {"last_accessed_at": at}},
            )

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, beside: bool = False
    ) -> int:
        """See `edenmem.store.protocol.store.Store.set_vectors`."""
        written = 0
        for batch in batched(vectors.items(), _ADDITIONS):
            switch = self.vector_switch()
            slot = BESIDE if is_beside(switch, model, must=beside) else OWN
            operations = [
                UpdateOne(
                    {"_id": object_id(fact_id), "hash": hash},
                    {"$set": place_vector(fields, hash, switch)},
                )
                for fact_id, (hash, vector) in batch
                if (fields := self._vector_fields(vector, model))
            ]
            written += self._facts.bulk(operations)[0]
            self._last_written[slot.index] = [object_id(batch[-1][0])]
        return written

    def _vector_fields(self, vector: bytes, model: str) -> dict[str, Any]:
        return codec.vector_fields(vector, model, self._storage())
