"""Versions of a backup: past ones into history, the current one onto the document itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pymongo import UpdateOne

from edenmem.models.backup import (
    Loaded,
    LoadStatus,
    RecordKind,
    StoredVersion,
    compared,
    version_id,
)
from edenmem.models.changes import HistoryEntry
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.filters import id_parts, optional_id
from edenmem.store.mongo.memory.history import (
    Kept,
    fact_version,
    history_document,
    history_from,
    text_version,
)
from edenmem.store.mongo.walk.loading import ADDED, SAME, Answers, LoadingPart

_OF_ANOTHER = Loaded(status=LoadStatus.KEPT, detail="what it is a version of is another here")


class _Target(msgspec.Struct):
    """A document whose versions come: the one that it holds, and whether it says who made it."""

    key: Document
    current: Kept
    is_marked: bool


class HistoryLoadingPart(LoadingPart):
    """Loads versions, each target's in the order in which they followed each other."""

    def _load_history(self, records: Sequence[StoredVersion], dry_run: bool) -> Answers:
        answers: Answers = {}
        past = self._past(records)
        for target_type, collection in (
            ("fact", self._facts),
            ("consolidation", self._consolidated),
        ):
            of_type = [record for record in records if record.target_type == target_type]
            load = _Load(past, self._targets(collection, target_type, of_type))
            for place, record in enumerate(records):
                if record.target_type == target_type:
                    answers[place] = load.judge(record)
            if not dry_run:
                self._history.insert_new(load.inserts)
                collection.bulk(load.marks)
        return {**dict.fromkeys(range(len(records)), _OF_ANOTHER), **answers}

    def _past(self, records: Sequence[StoredVersion]) -> dict[str, Kept]:
        """What history has of these versions, by the ids that go with their places."""
        filters = [{"_id": {"$in": part}} for part in id_parts(map(_id, records))]
        found = map(history_from, self._find_all(self._history, filters))
        return {version.entry.id: version for version in found}

    def _targets(
        self, collection: Collection, target_type: str, records: Sequence[StoredVersion]
    ) -> dict[str, _Target]:
        read = fact_version if target_type == "fact" else text_version
        filters = [{"_id": {"$in": part}} for part in id_parts(one.target_id for one in records)]
        targets = {}
        for document in self._find_all(collection, filters, codec.NO_VECTOR):
            if target_type == "fact" or codec.stored_version(document):
                targets[str(document["_id"])] = _Target(
                    codec.version_filter(document),
                    read(document),
                    document.get("last_change_id") is not None,
                )
        return targets


class _Load:
    """What is to be written for a batch of versions."""

    def __init__(self, past: dict[str, Kept], targets: dict[str, _Target]) -> None:
        self._past = past
        self._targets = targets
        self.inserts: list[Document] = []
        self.marks: list[UpdateOne] = []

    def judge(self, record: StoredVersion) -> Loaded:
        """The answer to one version; what follows from it is noted."""
        known = self._past.get(_id(record))
        if known is not None:
            return compared(RecordKind.HISTORY, _record(known), record)
        version = _version(record)
        target = self._targets.get(record.target_id)
        if target is None or _is_past(version, target.current):
            self.inserts.append(history_document(version))
            return ADDED
        if not _could_be(version, target.current):
            return _OF_ANOTHER
        if version.life > target.current.life:  # it was removed and restored since
            self.inserts.append(history_document(target.current))
        elif _origin(version) == _origin(target.current):
            return SAME
        elif target.is_marked:
            return compared(RecordKind.HISTORY, _record(target.current), record)
        self.marks.append(UpdateOne(target.key, {"$set": _mark(version)}))
        target.current, target.is_marked = version, True
        return ADDED


def _is_past(version: Kept, current: Kept) -> bool:
    """Whether it came before the version that the document holds, or ended a life of it."""
    if version.is_tombstone:
        return version.entry.version <= current.entry.version
    return version.place < current.place


def _could_be(version: Kept, current: Kept) -> bool:
    """Whether it may be the very version that the document holds."""
    same = version.entry.version == current.entry.version
    return same and not version.is_tombstone and version.entry.content == current.entry.content


def _origin(version: Kept) -> tuple[object, ...]:
    entry = version.entry
    return version.life, entry.action, entry.actor, entry.change_id, entry.at


def _mark(version: Kept) -> Document:
    entry = version.entry
    made = {"version": entry.version, "at": entry.at, "action": entry.action, "actor": entry.actor}
    fields: Document = {"last_version": made, "last_change_id": optional_id(entry.change_id)}
    return {**fields, "life": version.life} if version.life else fields


def _id(record: StoredVersion) -> str:
    return version_id(record.target_type, record.target_id, record.place)


def _version(record: StoredVersion) -> Kept:
    fields = {name: getattr(record, name) for name in HistoryEntry.__struct_fields__}
    return Kept(HistoryEntry(**{**fields, "id": _id(record)}), record.life)


def _record(version: Kept) -> StoredVersion:
    return StoredVersion(**msgspec.structs.asdict(version.entry), life=version.life)
