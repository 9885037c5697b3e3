"""The one atomic write by which a scope gets its next consolidated text, or an old one again."""

from __future__ import annotations

from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.models.changes import (
    AuditEntry,
    ChangeResult,
    ChangeStatus,
    RevertConsolidation,
    WriteConsolidation,
)
from edenmem.models.ids import new_id, utc_now
from edenmem.models.memory import Consolidation
from edenmem.store.mongo.apply.absorbing import MARK, RELEASING
from edenmem.store.mongo.apply.ledger import Run, result
from edenmem.store.mongo.apply.reflection_changes import ReflectionChangesPart
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import (
    build_consolidated_key,
    id_parts,
    object_id,
    object_ids,
    owner_fields,
)
from edenmem.store.mongo.memory.history import plain, text_version
from edenmem.store.mongo.memory.propagation import UNPROPAGATED


class TextChangesPart(ReflectionChangesPart):
    """Writes consolidated texts, and takes them back.

    Text, VERSION line, version, buffer and the list of what was absorbed change in one update that
    is conditional on the text as it was read and on the buffer still holding all that is absorbed;
    or, where reflections go back into the buffer, on the buffer being as it was.
    The reflections' own flags follow (see `absorbing`).
    """

    def _write_consolidation(self, run: Run, change: WriteConsolidation) -> ChangeResult:
        document = self._buffer(change.scope)
        found = self._written_before(run, change, document)
        if found is not None:
            return found
        version = 0 if document is None else codec.read_version(document)
        if version != change.expected_version:
            return _conflict(change, document, f"the text is at version {version}")
        waiting = codec.text_ids(document[_BUFFER]) if document is not None else ()
        gone = set(change.absorbed_ids) - set(waiting)
        if gone:
            return _conflict(change, document, f"{len(gone)} of the reflections do not wait here")
        if document is None:
            return self._first_text(run, change)
        return self._next_text(run, change, document)

    def _written_before(
        self, run: Run, change: _TextChange, document: Document | None
    ) -> ChangeResult | None:
        """For a change that another run may have made: complete and answer it if it was."""
        if change.id not in run.resumed or document is None:
            return None
        document_id = str(document["_id"])
        if codec.text_id(document.get("last_change_id")) == change.id:
            self._keep_version(text_version(document))
        elif self._history_by("consolidation", document_id, change.id) is None:
            return None
        return run.already(change, document_id, change.scope)

    def _first_text(self, run: Run, change: WriteConsolidation) -> ChangeResult:
        now = utc_now()
        document = {
            "_id": object_id(new_id()),
            **build_consolidated_key(change.scope),
            _BUFFER: [],
            "createdAt": now,
            **self._text_fields(run, change, change.absorbed_ids),
        }
        if change.propagate:
            document[UNPROPAGATED] = [change.next_version]
        entry = self._text_entry(run, change, None, document, change.absorbed_ids)
        if not self._begin(run, entry):
            return run.answer(change)
        try:
            self._consolidated.insert_one(document)
        except DuplicateKeyError:  # a buffer was begun, or a text written, at the same time
            return self._write_consolidation(run, change)
        return self._completed(run, change, document)

    def _next_text(self, run: Run, change: WriteConsolidation, document: Document) -> ChangeResult:
        fields = self._text_fields(run, change, change.absorbed_ids)
        after = {**document, **fields}
        entry = self._text_entry(run, change, document, after, change.absorbed_ids)
        if not self._begin(run, entry):
            return run.answer(change)
        if change.expected_version > 0:
            self._keep_version(text_version(document))
        # The ids as the buffer has them: an old document may hold them as text.
        stored = {str(value): value for value in document[_BUFFER]}
        absorbed = [stored[reflection_id] for reflection_id in change.absorbed_ids]
        unchanged = _unchanged(document)
        update: dict[str, Any] = {"$set": fields, "$unset": {RELEASING: ""}}
        if change.propagate:
            update["$addToSet"] = {UNPROPAGATED: change.next_version}
        if absorbed:
            unchanged[_BUFFER] = {"$all": absorbed}
            update["$pull"] = {_BUFFER: {"$in": absorbed}}
        written = self._consolidated.find_and_update(unchanged, update)
        if written is None:
            run.resumed.add(change.id)  # by now it may have been made by a twin of this run
            return self._write_again(run, change)
        return self._completed(run, change, written)

    def _revert_consolidation(self, run: Run, change: RevertConsolidation) -> ChangeResult:
        document = self._buffer(change.scope)
        found = self._written_before(run, change, document)
        if found is not None:
            return found
        version = 0 if document is None else codec.read_version(document)
        if document is None or version != change.expected_version:
            return _conflict(change, document, f"the text is at version {version}")
        released = tuple(dict.fromkeys(change.released_ids))
        gone = len(released) - self._absorbed(change, released)
        if gone:
            detail = f"{gone} of the reflections are not consolidated, or not there any more"
            return _conflict(change, document, detail)
        fields = self._text_fields(run, change, ())
        fields[_BUFFER] = self._in_time_order([*document[_BUFFER], *object_ids(released)])
        entry = self._text_entry(run, change, document, {**document, **fields}, ())
        if not self._begin(run, entry):
            return run.answer(change)
        self._keep_version(text_version(document))
        if released:
            fields[RELEASING] = object_ids(released)
        update = {
            "$set": fields,
            "$unset": {MARK: ""},
            "$pull": {UNPROPAGATED: {"$in": list(change.reverted_versions)}},
        }
        unchanged = {**_unchanged(document), _BUFFER: document[_BUFFER]}
        written = self._consolidated.find_and_update(unchanged, update)
        if written is None:
            run.resumed.add(change.id)  # by now it may have been made by a twin of this run
            return self._write_again(run, change)
        return self._completed(run, change, written)

    def _absorbed(self, change: RevertConsolidation, ids: tuple[str, ...]) -> int:
        """How many of these are the scope's, and absorbed."""
        filters = [
            {"_id": {"$in": part}, **owner_fields(change.scope), "absorbed": True}
            for part in id_parts(ids)
        ]
        return sum(1 for _ in self._find_all(self._reflections, filters, {"_id": 1}))

    def _write_again(self, run: Run, change: _TextChange) -> ChangeResult:
        if isinstance(change, RevertConsolidation):
            found = self._revert_consolidation(run, change)
        else:
            found = self._write_consolidation(run, change)
        if not found.ok:
            self._withdraw(run, [change.id])
        return found

    def _completed(self, run: Run, change: _TextChange, document: Document) -> ChangeResult:
        self._finish_absorbing(document)
        self._keep_version(text_version(document))
        return run.applied(change, str(document["_id"]), change.scope)

    def _text_fields(
        self, run: Run, change: _TextChange, absorbed_ids: tuple[str, ...]
    ) -> Document:
        version = change.next_version
        fields: Document = {
            "consolidated_content": codec.with_version_line(change.content, version),
            "version": version,
            "word_limit": change.word_limit,
            "absorbed_ids": object_ids(absorbed_ids),
            "updated_at": change.at,
            "updatedAt": utc_now(),
            **run.mark(change, version, change.at),
        }
        if absorbed_ids:
            fields["last_consolidated_at"] = change.at
            fields[MARK] = object_id(change.id)
        return fields

    def _text_entry(
        self,
        run: Run,
        change: _TextChange,
        before: Document | None,
        after: Document,
        absorbed_ids: tuple[str, ...],
    ) -> AuditEntry:
        return run.entry(
            change,
            target_type="consolidation",
            target_id=str(after["_id"]),
            agent_id=change.scope.agent_id,
            scope=change.scope,
            before=plain(codec.consolidation_from(before)) if before is not None else None,
            after=plain(_without(codec.consolidation_from(after), absorbed_ids)),
        )


_BUFFER = "unabsorbed_ids"
_TextChange = WriteConsolidation | RevertConsolidation


def _without(text: Consolidation, absorbed_ids: tuple[str, ...]) -> Consolidation:
    left = tuple(id for id in text.unabsorbed_ids if id not in absorbed_ids)
    return msgspec.structs.replace(text, unabsorbed_ids=left)


def _unchanged(document: Document) -> Document:
    """A filter for a text that nobody has written since it was read."""
    content = document.get("consolidated_content")
    return {**codec.version_filter(document), "consolidated_content": content}


def _conflict(change: _TextChange, document: Document | None, detail: str) -> ChangeResult:
    target = str(document["_id"]) if document is not None else ""
    return result(change, ChangeStatus.CONFLICT, target, detail)
