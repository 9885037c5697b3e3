"""The audit entry of each change: written first, finished last.

MongoDB is used without transactions, as a standalone server has none. A change is therefore a row
of steps that each may be done again: its audit entry is inserted as "pending"; history gets the
version that will be replaced; one conditional write changes the one document, and leaves the
change's id on it; history gets the new version; the scope's revision grows and the entry becomes
"done". A set that was cut off anywhere is completed by applying it again: an entry that is done
means that nothing is left to do, a pending one that each step must find out whether it was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from bson import ObjectId
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ConflictError
from edenmem.models.changes import (
    AuditEntry,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    version_action,
)
from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import (
    IN_LIMIT,
    id_parts,
    object_id,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.memory.history import (
    VOID,
    HistoryPart,
    Kept,
    audit_document,
    audit_from,
    history_document,
    history_from,
)
from edenmem.store.protocol.store import batched

DONE = "done"
PENDING = "pending"


class Run:
    """One application of a set: what is known of its changes, and what is left to finish.

    ``answered`` are the entries of changes that need nothing more; ``resumed`` the changes that had
    a pending entry: another run has taken, or takes, some of their steps.
    """

    def __init__(self, changes: ChangeSet, known: Mapping[str, AuditEntry]) -> None:
        self.set = changes
        self.answered = {id: e for id, e in known.items() if e.status != PENDING}
        self.resumed = {id for id, e in known.items() if e.status == PENDING}
        self.entries: dict[str, AuditEntry] = {}
        self.finished: list[str] = []
        #: Why a foreign index refused a change; raised when all others are made.
        self.refusal: ConflictError | None = None
        self.touched: dict[Scope, None] = {}

    def answers(self, change: Change) -> bool:
        """Whether the change needs nothing more."""
        return change.id in self.answered

    def answer(self, change: Change) -> ChangeResult:
        """What became of a change that needs nothing more."""
        entry = self.answered[change.id]
        void = entry.status == VOID
        status = ChangeStatus.DUPLICATE if void else ChangeStatus.ALREADY
        return result(change, status, entry.target_id)

    def entry(
        self,
        change: Change,
        *,
        target_type: str,
        target_id: str,
        agent_id: str,
        scope: Scope | None,
        before: dict[str, object] | None = None,
        after: dict[str, object] | None = None,
    ) -> AuditEntry:
        """The change's audit entry, pending."""
        return AuditEntry(
            id=change.id,
            change_set_id=self.set.id,
            at=self.set.at,
            actor=self.set.actor,
            action=str(type(change).__struct_config__.tag),
            target_type=target_type,
            target_id=target_id,
            agent_id=agent_id,
            scope=scope,
            before=before,
            after=after,
            reason=change.reason,
            status=PENDING,
            undoes=change.undoes,
        )

    def mark(self, change: Change, version: int, at: datetime) -> Document:
        """The fields by which a document says that this change made its version."""
        actor = self.set.actor
        action = version_action(change, actor)
        return codec.mark(change.id, version, at=at, action=action, actor=actor.name)

    def finish(self, change: Change, scope: Scope | None) -> None:
        """All steps are taken; the entry will be marked at the end of the run."""
        self.finished.append(change.id)
        if scope is not None:
            self.touched[scope] = None

    def applied(self, change: Change, target_id: str, scope: Scope | None) -> ChangeResult:
        """The change was made now."""
        self.finish(change, scope)
        return result(change, ChangeStatus.APPLIED, target_id)

    def already(self, change: Change, target_id: str, scope: Scope | None) -> ChangeResult:
        """The change was made by another run, which may not have finished it."""
        self.finish(change, scope)
        return result(change, ChangeStatus.ALREADY, target_id)


def result(change: Change, status: ChangeStatus, target_id: str, detail: str = "") -> ChangeResult:
    """What became of a change."""
    return ChangeResult(change_id=change.id, status=status, target_id=target_id, detail=detail)


class LedgerPart(HistoryPart):
    """Keeps audit entries, history and revisions in step with the changes."""

    def _known_entries(self, ids: Iterable[str]) -> dict[str, AuditEntry]:
        filters = [{"_id": {"$in": part}} for part in id_parts(ids)]
        entries = map(audit_from, self._find_all(self._audit, filters))
        return {entry.id: entry for entry in entries}

    def _begin(self, run: Run, entry: AuditEntry) -> bool:
        """Write the entry as pending; an older pending one is brought up to date. False: the
        change was finished meanwhile, and ``run`` has the answer."""
        self._begin_many(run, [entry])
        return entry.id not in run.answered

    def _begin_many(self, run: Run, entries: Sequence[AuditEntry]) -> None:
        """`_begin` for several entries, in one round trip for those that are new."""
        run.entries.update((entry.id, entry) for entry in entries)
        new = [entry for entry in entries if entry.id not in run.resumed]
        refused = self._audit.insert_new([audit_document(entry) for entry in new])
        run.resumed.update(new[place].id for place in refused)
        for entry in entries:
            if entry.id in run.resumed:
                self._begin_again(run, entry)

    def _begin_again(self, run: Run, entry: AuditEntry) -> None:
        document = audit_document(entry)
        key = {"_id": document.pop("_id")}
        if self._audit.update_one({**key, "status": PENDING}, {"$set": document}):
            return
        found = self._audit.find_one(key)
        if found is None:  # taken back by another run of the set
            run.resumed.discard(entry.id)
            self._begin_many(run, [entry])
        elif found["status"] == PENDING:  # taken back and begun once more
            self._begin_again(run, entry)
        else:
            run.answered[entry.id] = audit_from(found)

    def _begun_elsewhere(self, run: Run, change: Change) -> bool:
        """Whether another run of the set has begun a change that this one knew nothing of.

        Its entry is older than its steps. So, asked after something was found to be otherwise than
        the change expects, this says whether the change itself may be why.
        """
        if change.id in run.resumed:
            return False
        entry = self._known_entries([change.id]).get(change.id)
        if entry is None:
            return False
        if entry.status == PENDING:
            run.resumed.add(change.id)
        else:
            run.answered[change.id] = entry
        return True

    def _removed_by_other(self, change: Change, target_id: str, version: int) -> bool:
        """Whether a change other than this one took the target away at this version."""
        entries = map(audit_from, self._audit.find({"target_id": object_id(target_id)}))
        return any(
            entry.id != change.id
            and entry.after is None
            and entry.before is not None
            and entry.before.get("version") == version
            for entry in entries
        )

    def _withdraw(self, run: Run, change_ids: Iterable[str]) -> None:
        """Take back entries of changes that turned out not to be possible."""
        for part in id_parts(change_ids):
            self._audit.delete_many({"_id": {"$in": part}, "status": PENDING})
            for change_id in part:
                run.entries.pop(str(change_id), None)
                run.resumed.discard(str(change_id))

    def _dismiss(self, run: Run, results: Iterable[ChangeResult]) -> None:
        """Take back the entries of additions that were refused; remember the duplicates."""
        refused = [r for r in results if r.status is ChangeStatus.CONFLICT]
        self._withdraw(run, (found.change_id for found in refused))
        duplicates = [r for r in results if r.status is ChangeStatus.DUPLICATE]
        self._audit.bulk(
            [
                UpdateOne(
                    {"_id": object_id(found.change_id), "status": PENDING},
                    {"$set": {"status": VOID, "target_id": object_id(found.target_id)}},
                )
                for found in duplicates
            ]
        )

    def _finish(self, run: Run) -> None:
        """Grow the revisions of what was touched, then mark the entries."""
        if not run.finished:
            return
        self._touch(run.touched)
        for part in id_parts(run.finished):
            marked = {"$set": {"status": DONE, "updatedAt": utc_now()}}
            if self._audit.update_many({"_id": {"$in": part}}, marked) < len(part):
                self._restore_entries(run, part)

    def _restore_entries(self, run: Run, ids: Iterable[ObjectId | str]) -> None:
        """Write entries again that a twin of this run took back although the change was made."""
        entries = (run.entries.get(str(change_id)) for change_id in ids)
        self._audit.insert_new(
            [
                audit_document(msgspec.structs.replace(entry, status=DONE))
                for entry in entries
                if entry is not None
            ]
        )

    def _touch(self, scopes: Iterable[Scope]) -> None:
        """Let the revision of each scope grow."""
        for part in batched(scopes, IN_LIMIT):
            operations = [self._revision_update(scope) for scope in part]
            while operations:
                # Two first touches of a scope at once: the loser finds the document there.
                _, failed = self._policies.bulk(operations)
                operations = [operations[place] for place in sorted(failed)]

    @staticmethod
    def _revision_update(scope: Scope) -> UpdateOne:
        now = utc_now()
        made = {**owner_fields(scope), "createdAt": now}
        return UpdateOne(
            {"_id": policy_id(scope)},
            {"$inc": {"revision": 1}, "$setOnInsert": made, "$set": {"updatedAt": now}},
            upsert=True,
        )

    # -- history -----------------------------------------------------------------------------

    def _keep_version(self, version: Kept) -> None:
        """Write the version that a document holds; what it says stands over what is there."""
        document = history_document(version)
        self._upsert_history(document.pop("_id"), {"$set": document})

    def _keep_tombstone(self, version: Kept) -> bool:
        """Write a tombstone unless another removal has written one; whether it is this one's."""
        document = history_document(version)
        found = self._upsert_history(document.pop("_id"), {"$setOnInsert": document})
        return codec.text_id(found.get("change_id")) == version.entry.change_id

    def _upsert_history(self, key: Any, update: Document) -> Document:
        own = {"_id": key}
        seen = {"change_id": 1}
        try:
            found = self._history.find_and_update(own, update, projection=seen, upsert=True)
        except DuplicateKeyError:  # two upserts at once: it is there now
            found = self._history.find_and_update(own, update, projection=seen, upsert=True)
        return found or {}

    def _history_by(self, target_type: str, target_id: str, change_id: str) -> Kept | None:
        """The version that a change made, if history has it."""
        key = {"target_type": target_type, "target_id": object_id(target_id)}
        versions = map(history_from, self._history.find(key))
        return next((v for v in versions if v.entry.change_id == change_id), None)

    def _has_removed_reflection(self, reflection_id: str, version: int) -> bool:
        """Whether a reflection was removed that was, or had been, of this version."""
        entries = map(audit_from, self._audit.find({"target_id": object_id(reflection_id)}))
        return any(
            entry.action == "remove_reflection"
            and entry.before is not None
            and entry.before.get("version", 1) >= version
            for entry in entries
        )
