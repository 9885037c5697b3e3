"""Changes of reflections and of the buffers that they wait in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from pymongo import UpdateOne

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    AddReflection,
    AuditEntry,
    ChangeResult,
    ChangeStatus,
    RemoveReflection,
    ReviseReflection,
)
from edenmem.models.ids import utc_now
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.store.mongo import codec
from edenmem.store.mongo.collection import Document
from edenmem.store.mongo.filters import (
    consolidated_filters,
    consolidated_key,
    object_id,
    object_ids,
)
from edenmem.store.mongo.history import plain
from edenmem.store.mongo.ledger import LedgerPart, Run, result

_BUFFER = "unabsorbed_ids"


class ReflectionChangesPart(LedgerPart):
    """Alters reflections. A reflection is inserted before it is put into its buffer, and taken out
    of the buffer after it is removed, so that a buffer never lacks one that waits."""

    # -- adding ------------------------------------------------------------------------------

    def _add_reflections(self, run: Run, changes: Sequence[AddReflection]) -> list[ChangeResult]:
        results: dict[str, ChangeResult] = {}
        fresh: list[AddReflection] = []
        for change in changes:
            found = self._put_before(run, change) or _unfit(change)
            if found is None:
                fresh.append(change)
            else:
                results[change.id] = found
        for found in self._insert_reflections(run, fresh) if fresh else ():
            results[found.change_id] = found
        return [results[change.id] for change in changes]

    def _put_before(self, run: Run, change: AddReflection) -> ChangeResult | None:
        """For a change whose entry is pending: complete it if its reflection was inserted."""
        if change.id not in run.resumed:
            return None
        reflection = change.reflection
        document = self._reflections.find_one({"_id": object_id(reflection.id)})
        if document is None:
            if not self._has_removed_reflection(reflection.id):
                return None
        elif not remembers(document, change.id):
            return None
        else:
            self._put_back_in_buffer(change)
        return run.already(change, reflection.id, reflection.home)

    def _put_back_in_buffer(self, change: AddReflection) -> None:
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
            {"_id": buffer["_id"], "absorbed_ids": {"$ne": own}}, {"$addToSet": {_BUFFER: own}}
        )

    def _insert_reflections(self, run: Run, changes: Sequence[AddReflection]) -> list[ChangeResult]:
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

    def _refused(self, run: Run, change: AddReflection) -> ChangeResult:
        """A reflection's id is taken: by another run of the set, or by another reflection."""
        run.resumed.add(change.id)
        detail = "another reflection has its id"
        taken = result(change, ChangeStatus.CONFLICT, change.reflection.id, detail)
        return self._put_before(run, change) or taken

    def _fill_buffers(self, changes: Sequence[AddReflection]) -> None:
        """Put reflections at the end of their scopes' buffers, in order, one write a scope."""
        waiting: dict[Scope, list[AddReflection]] = {}
        for change in changes:
            if not change.reflection.absorbed:
                waiting.setdefault(change.reflection.home, []).append(change)
        for document in self._find_all(self._consolidated, consolidated_filters(waiting)):
            self._mend_buffer(document)
        operations = [
            _buffer_update(scope, members, utc_now()) for scope, members in waiting.items()
        ]
        while operations:
            # Two first reflections of a scope at once: the loser finds the document there.
            _, failed = self._consolidated.bulk(operations)
            operations = [operations[place] for place in sorted(failed)]

    def _buffer(self, scope: Scope) -> Document | None:
        """The scope's consolidated document, with its flags and its buffer in order."""
        document = self._consolidated.find_one(consolidated_key(scope))
        if document is not None:
            self._mend_buffer(document)
        return document

    def _mend_buffer(self, document: Document) -> None:
        self._finish_absorbing(document)
        if not isinstance(document.get(_BUFFER), list):
            self._consolidated.update_one(
                {"_id": document["_id"], _BUFFER: document.get(_BUFFER)}, {"$set": {_BUFFER: []}}
            )
            document[_BUFFER] = []

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

    def _empty_place(self, change: RemoveReflection) -> None:
        buffer = self._buffer(change.scope)
        if buffer is not None:
            both = [object_id(change.reflection_id), change.reflection_id]  # stored as text, too
            self._consolidated.update_one(
                {"_id": buffer["_id"]},
                {"$pull": {_BUFFER: {"$in": both}}, "$set": {"updatedAt": utc_now()}},
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


def _entry(run: Run, change: AddReflection) -> AuditEntry:
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


def _buffer_update(scope: Scope, changes: Sequence[AddReflection], now: datetime) -> UpdateOne:
    ids = object_ids(change.reflection.id for change in changes)
    return UpdateOne(
        consolidated_key(scope),
        {
            "$addToSet": {_BUFFER: {"$each": ids}},
            "$setOnInsert": {
                "consolidated_content": "",
                "word_limit": changes[0].word_limit,
                "createdAt": now,
            },
            "$set": {"updatedAt": now},
        },
        upsert=True,
    )


def _unfit(change: AddReflection) -> ChangeResult | None:
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
