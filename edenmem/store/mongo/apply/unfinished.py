"""Changes whose process died on the way: what came to pass is finished, what did not is withdrawn.

A set that is written down somewhere (a formation's) is completed by applying it again. An edit or a
consolidation is not: after a crash, whoever wanted it looks again and decides anew. What is left of
it is an audit entry that is pending for ever, perhaps of a change that was made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    AuditEntry,
    ChangeResult,
    ChangeSet,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RepairBuffer,
    RestoreReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.changes import ChangesPart
from edenmem.store.mongo.apply.fact_additions import Addition
from edenmem.store.mongo.apply.ledger import PENDING, Run
from edenmem.store.mongo.apply.reflection_changes import remembers
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.filters import object_id, policy_id
from edenmem.store.mongo.host.host_codec import agent_from
from edenmem.store.mongo.memory.history import audit_from, plain


class UnfinishedPart(ChangesPart):
    """Settles audit entries that nobody else will."""

    def finish_changes(self, *, before: datetime) -> int:
        """See `edenmem.store.protocol.store.Store.finish_changes`."""
        found = self._audit.find({"status": PENDING, "at": {"$lt": before}})
        entries = [audit_from(document) for document in found]
        for entry in entries:
            changes = ChangeSet(id=entry.change_set_id, actor=entry.actor, at=entry.at)
            run = Run(changes, {entry.id: entry})
            if self._made_before(run, entry) is None:
                self._withdraw(run, [entry.id])
            self._finish(run)
        return len(entries)

    def _made_before(self, run: Run, entry: AuditEntry) -> ChangeResult | None:
        """Complete the change if it was made; None if it was not."""
        if entry.action in ("add_fact", "revise_fact") and entry.before is None:
            fact = msgspec.convert(entry.after, Fact)
            return self._added_before(run, Addition(AddFact(id=entry.id, fact=fact), fact))
        if entry.scope is None:
            return self._account_changed(run, entry)
        looks: dict[str, Callable[[Run, AuditEntry, Scope], ChangeResult | None]] = {
            "revise_fact": self._fact_revised if entry.after else self._fact_removed,
            "remove_fact": self._fact_removed,
            "set_privacy": self._privacy_set,
            "add_reflection": self._reflection_added,
            "restore_reflection": self._reflection_restored,
            "revise_reflection": self._reflection_revised,
            "remove_reflection": self._reflection_removed,
            "write_consolidation": self._text_written,
            "revert_consolidation": self._text_written,
            "repair_buffer": self._buffer_repaired,
            "write_policy": self._policy_written_before,
            "remove_policy": self._policy_removed,
        }
        return looks[entry.action](run, entry, entry.scope)

    def _fact_revised(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        after = msgspec.convert(entry.after, Fact)
        change = ReviseFact(
            id=entry.id,
            scope=scope,
            fact_id=entry.target_id,
            expected_version=after.version - 1,
            content=after.content,
            at=entry.at,
        )
        return self._revised_before(run, change)

    def _fact_removed(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        tombstone = self._history_by("fact", entry.target_id, entry.id)
        if tombstone is None or not tombstone.is_tombstone:
            return None
        document = self._fact_in(scope, entry.target_id)
        if document is not None and codec.number(document.get("life")) <= tombstone.life:
            return None  # the tombstone is written first
        change = RemoveFact(
            id=entry.id,
            scope=scope,
            fact_id=entry.target_id,
            expected_version=tombstone.entry.version,
            at=entry.at,
        )
        return run.already(change, entry.target_id, scope)

    def _privacy_set(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        wanted = bool((entry.after or {}).get("private"))
        read = self.fact if entry.target_type == "fact" else self.reflection
        target = read(entry.target_id)
        if target is None or target.private is not wanted:
            return None
        change = SetPrivacy(
            id=entry.id,
            scope=scope,
            target_type=entry.target_type,
            target_id=entry.target_id,
            private=wanted,
            at=entry.at,
        )
        return run.already(change, entry.target_id, scope)

    def _reflection_added(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        reflection = msgspec.convert(entry.after, Reflection)
        return self._put_before(
            run, AddReflection(id=entry.id, reflection=reflection, word_limit=0)
        )

    def _reflection_restored(
        self, run: Run, entry: AuditEntry, scope: Scope
    ) -> ChangeResult | None:
        reflection = msgspec.convert(entry.after, Reflection)
        return self._put_before(
            run, RestoreReflection(id=entry.id, reflection=reflection, word_limit=0)
        )

    def _reflection_revised(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        document = self._reflection_in(scope, entry.target_id)
        if document is None or not remembers(document, entry.id):
            return None
        after = msgspec.convert(entry.after, Reflection)
        change = ReviseReflection(
            id=entry.id,
            scope=scope,
            reflection_id=after.id,
            expected_version=after.version - 1,
            content=after.content,
            at=entry.at,
        )
        return run.already(change, after.id, scope)

    def _reflection_removed(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        before = msgspec.convert(entry.before, Reflection)
        change = RemoveReflection(
            id=entry.id,
            scope=scope,
            reflection_id=before.id,
            expected_version=before.version,
            at=entry.at,
        )
        if self._reflection_in(scope, before.id) is not None:
            back = self._was_restored(change)
            return run.already(change, before.id, scope) if back else None
        if self._removed_by_other(change, before.id, before.version):
            return None
        self._empty_place(change)
        return run.already(change, before.id, scope)

    def _text_written(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        after = entry.after or {}
        change = WriteConsolidation(
            id=entry.id,
            scope=scope,
            expected_version=int(after["version"]) - 1,
            content=str(after["consolidated_content"]),
            word_limit=int(after["word_limit"]),
            at=entry.at,
            absorbed_ids=tuple(after["absorbed_ids"]),
        )
        return self._written_before(run, change, self._buffer(scope))

    def _buffer_repaired(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        """Repair it now: what waits in the buffer follows from the flags, whoever asks."""
        return self._repair_buffer(run, RepairBuffer(id=entry.id, scope=scope, at=entry.at))

    def _policy_removed(self, run: Run, entry: AuditEntry, scope: Scope) -> ChangeResult | None:
        document = self._policies.find_one({"_id": policy_id(scope)})
        if document is None or not remembers(document, entry.id):
            return None
        change = RemovePolicy(id=entry.id, scope=scope, expected_version=0, at=entry.at)
        return run.already(change, entry.target_id, scope)

    def _policy_written_before(
        self, run: Run, entry: AuditEntry, scope: Scope
    ) -> ChangeResult | None:
        document = self._policies.find_one({"_id": policy_id(scope)})
        if document is None or not remembers(document, entry.id):
            return None
        policy = msgspec.convert(entry.after, Policy)
        change = WritePolicy(
            id=entry.id, policy=policy, expected_version=policy.version - 1, at=entry.at
        )
        return run.already(change, entry.target_id, scope)

    def _account_changed(self, run: Run, entry: AuditEntry) -> ChangeResult | None:
        if entry.action == "set_agent_toggles":
            return self._toggled_before(run, entry)
        there = self._account(entry.target_type, entry.target_id) is not None
        if there is not entry.action.startswith("add_"):
            return None
        change = RemoveAgent(id=entry.id, agent_id=entry.target_id)
        return run.already(change, entry.target_id, None)

    def _toggled_before(self, run: Run, entry: AuditEntry) -> ChangeResult | None:
        document = self._users.find_one({"_id": object_id(entry.target_id)})
        if document is None or plain(agent_from(document)) != entry.after:
            return None
        change = SetAgentToggles(id=entry.id, agent_id=entry.target_id, at=entry.at)
        return run.already(change, entry.target_id, None)
