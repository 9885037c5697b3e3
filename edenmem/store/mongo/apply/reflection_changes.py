"""Changes of reflections and of the buffers that they wait in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    AuditEntry,
    ChangeResult,
    ChangeStatus,
    RemoveReflection,
    RestoreReflection,
    ReviseReflection,
)
from edenmem.models.ids import utc_now
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.ledger import Run, result
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import (
    object_id,
)
from edenmem.store.mongo.memory.buffers import BUFFER, Addition, BuffersPart
from edenmem.store.mongo.memory.history import audit_from, plain


class ReflectionChangesPart(BuffersPart):
    """Alters reflections. A reflection is inserted before it is put into its buffer, and taken out
    of the buffer after it is removed, so that a buffer never lacks one that waits."""

    # -- adding ------------------------------------------------------------------------------

    def _add_reflections(self, run: Run, changes: Sequence[Addition]) -> list[ChangeResult]:
        results: dict[str, ChangeResult] = {}
        fresh: list[Addition] = []
        for change in changes:
            found = self._put_before(run, change) or _unfit(change)
            if found is None:
                fresh.append(change)
            else:
                results[change.id] = found
        for found in self._insert_reflections(run, fresh) if fresh else ():
            results[found.change_id] = found
        return [results[change.id] for change in changes]

    def _put_before(self, run: Run, change: Addition) -> ChangeResult | None:
        """For a change whose entry is pending: complete it if its reflection was inserted."""
        if change.id not in run.resumed:
            return None
        reflection = change.reflection
        document = self._reflections.find_one({"_id": object_id(reflection.id)})
        if document is None:
            if not self._has_removed_reflection(reflection.id, reflection.version):
                return None
        elif not remembers(document, change.id):
            return None
        else:
            self._put_back_in_buffer(change)
        return run.already(change, reflection.id, reflection.home)

    def _put_back_in_buffer(self, change: Addition) -> None:
        """Put an inserted reflection into its buffer unless it has gone through it already."""
        scope = change.reflection.home
        buffer = self._buffer(scope)  # also sets the flags of what was absorbed
        current = self.reflection(change.reflection.id)
        if current is None or current.absorbed:
            return
        if buffer is None:
            self._fill_buffers([change])
            return
        own = object_id(current.id)
        self._consolidated.update_one(
            {"_id": buffer["_id"], "absorbed_ids": {"$ne": own}}, {"$addToSet": {BUFFER: own}}
        )
        if isinstance(change, RestoreReflection):
            self._sort_buffer(scope)

    def _insert_reflections(self, run: Run, changes: Sequence[Addition]) -> list[ChangeResult]:
        self._begin_many(run, [_entry(run, change) for change in changes])
        results = [run.answer(change) for change in changes if run.answers(change)]
        open_ = [change for change in changes if not run.answers(change)]
        now = utc_now()
        refused = self._reflections.insert_new(
            [
                {
                    **codec.reflection_document(change.reflection, at=now),
                    "change_ids": [object_id(change.id)],
                }
                for change in open_
            ]
        )
        added = [change for place, change in enumerate(open_) if place not in refused]
        self._fill_buffers(added)
        for change in added:
            results.append(run.applied(change, change.reflection.id, change.reflection.home))
        for place in sorted(refused):
            results.append(self._refused(run, open_[place]))
        self._withdraw(run, (found.change_id for found in results if not found.ok))
        return results

    def _refused(self, run: Run, change: Addition) -> ChangeResult:
        """A reflection's id is taken: by another run of the set, or by another reflection."""
        run.resumed.add(change.id)
        detail = "another reflection has its id"
        taken = result(change, ChangeStatus.CONFLICT, change.reflection.id, detail)
        return self._put_before(run, change) or taken

    # -- revising and removing ---------------------------------------------------------------

    def _revise_reflection(self, run: Run, change: ReviseReflection) -> ChangeResult:
        self._buffer(change.scope)
        document = self._reflection_in(change.scope, change.reflection_id)
        if document is None:
            return _missing(change)
        reflection = codec.reflection_from(document)
        if change.id in run.resumed and remembers(document, change.id):
            return run.already(change, reflection.id, change.scope)
        refusal = _refusal(change, reflection)
        if refusal is not None:
            return refusal
        revised = msgspec.structs.replace(
            reflection,
            content=change.content,
            version=reflection.version + 1,
            updated_at=change.at,
        )
        if not self._begin_on(run, change, reflection, plain(revised)):
            return run.answer(change)
        written = self._reflections.update_one(
            {**codec.version_filter(document), "absorbed": {"$ne": True}},
            {
                "$set": {
                    "content": revised.content,
                    "version": revised.version,
                    "updated_at": revised.updated_at,
                    "updatedAt": utc_now(),
                },
                **remember(change.id),
            },
        )
        if written:
            return run.applied(change, reflection.id, change.scope)
        current = self._reflection_in(change.scope, change.reflection_id)
        if current is not None and remembers(current, change.id):
            return run.already(change, reflection.id, change.scope)
        self._withdraw(run, [change.id])
        if current is None:
            return _missing(change)
        return _refusal(change, codec.reflection_from(current)) or _conflict(change, "")

    def _remove_reflection(self, run: Run, change: RemoveReflection) -> ChangeResult:
        document = self._reflection_in(change.scope, change.reflection_id)
        if document is None:
            if change.id in run.resumed:
                self._empty_place(change)
                return run.already(change, change.reflection_id, change.scope)
            return _missing(change)
        reflection = codec.reflection_from(document)
        if reflection.version != change.expected_version:
            if change.id in run.resumed and self._was_restored(change):
                return run.already(change, reflection.id, change.scope)
            return _conflict(change, _stale(change, reflection))
        if not self._begin_on(run, change, reflection, None):
            return run.answer(change)
        if not self._reflections.delete_one(codec.version_filter(document)):
            current = self._reflection_in(change.scope, change.reflection_id)
            if current is not None:
                self._withdraw(run, [change.id])
                return _conflict(change, "it was changed meanwhile")
            if self._removed_by_other(change, reflection.id, reflection.version):
                self._withdraw(run, [change.id])
                return _missing(change)
        self._empty_place(change)
        return run.applied(change, reflection.id, change.scope)

    def _was_restored(self, change: RemoveReflection) -> bool:
        """Whether the removal was made, after which somebody restored the reflection."""
        version = change.expected_version
        entries = map(audit_from, self._audit.find({"target_id": object_id(change.reflection_id)}))
        return any(
            entry.action == "restore_reflection"
            and (entry.after or {}).get("version") == version + 1
            for entry in entries
        ) and not self._removed_by_other(change, change.reflection_id, version)

    def _empty_place(self, change: RemoveReflection) -> None:
        buffer = self._buffer(change.scope)
        if buffer is not None:
            both = [object_id(change.reflection_id), change.reflection_id]  # stored as text, too
            self._consolidated.update_one(
                {"_id": buffer["_id"]},
                {"$pull": {BUFFER: {"$in": both}}, "$set": {"updatedAt": utc_now()}},
            )

    def _begin_on(
        self,
        run: Run,
        change: ReviseReflection | RemoveReflection,
        reflection: Reflection,
        after: dict[str, Any] | None,
    ) -> bool:
        entry = run.entry(
            change,
            target_type="reflection",
            target_id=reflection.id,
            agent_id=reflection.agent_id,
            scope=reflection.home,
            before=plain(reflection),
            after=after,
        )
        return self._begin(run, entry)

    def _reflection_in(self, scope: Scope, reflection_id: str) -> Document | None:
        found = self._reflections.find_one({"_id": object_id(reflection_id)})
        if found is None:
            return None
        try:
            return found if codec.reflection_from(found).home == scope else None
        except ScopeError:
            return None


def _entry(run: Run, change: Addition) -> AuditEntry:
    reflection = change.reflection
    return run.entry(
        change,
        target_type="reflection",
        target_id=reflection.id,
        agent_id=reflection.agent_id,
        scope=reflection.home,
        after=plain(reflection),
    )


def remember(change_id: str) -> Document:
    """An update by which a document without history keeps the ids of its last changes, so that a
    change that is applied again knows itself even after others."""
    return {"$push": {"change_ids": {"$each": [object_id(change_id)], "$slice": -20}}}


def remembers(document: Document, change_id: str) -> bool:
    """Whether a change was made on the document."""
    return change_id in codec.text_ids(document.get("change_ids"))


def _unfit(change: Addition) -> ChangeResult | None:
    try:
        _ = change.reflection.home
    except ScopeError as error:
        return result(change, ChangeStatus.CONFLICT, change.reflection.id, error.message)
    return None


def _missing(change: ReviseReflection | RemoveReflection) -> ChangeResult:
    detail = "there is no such reflection"
    return result(change, ChangeStatus.MISSING, change.reflection_id, detail)


def _conflict(change: ReviseReflection | RemoveReflection, detail: str) -> ChangeResult:
    return result(change, ChangeStatus.CONFLICT, change.reflection_id, detail)


def _stale(change: ReviseReflection | RemoveReflection, reflection: Reflection) -> str:
    return f"it is at version {reflection.version}, not {change.expected_version}"


def _refusal(change: ReviseReflection, reflection: Reflection) -> ChangeResult | None:
    if reflection.absorbed:
        return _conflict(change, "it went into the consolidated text meanwhile")
    if reflection.version != change.expected_version:
        return _conflict(change, _stale(change, reflection))
    return None
