"""Read the audit log; an index serves each filter."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import DocumentDamaged
from edenmem.memory.outcome import VOID
from edenmem.models.records import AuditEntry, Seal, StoredEntry
from edenmem.models.scope import Scope
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EPOCH, EVERYTHING, Filter, at_or_after, object_id
from edenmem.store.mongo.memory.history import audit_from, stored_entry_from
from edenmem.store.protocol.log import AuditKey, command_prefixes

_NEWEST = (("at", -1), ("_id", -1))
_INDEXED = {"target_id", "agent_id", "scope_key", "actor.run_id", "actor.name"}
_FIELDS: dict[AuditKey, str] = {"entry": "_id", "target": "target_id", "run": "actor.run_id"}
_PREFIX = re.compile(r"[0-9a-f]{4,24}\Z")


class MongoAuditLog:
    """Implements `edenmem.store.protocol.log.AuditLog`."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    def audit(
        self,
        *,
        agent_id: str | None = None,
        target_id: str | None = None,
        target_ids: Sequence[str] = (),
        scope: Scope | None = None,
        run_id: str | None = None,
        actor: str | None = None,
        command: str | None = None,
        actions: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        unreadable: set[str] | None = None,
    ) -> Iterator[AuditEntry]:
        targets = target_ids if target_id is None else [target_id]
        words = "|".join(re.escape(text.rstrip()) for text in command_prefixes(command or ""))
        wanted = {
            "target_id": {"$in": list(map(object_id, targets))} if targets else None,
            "agent_id": None if agent_id is None else object_id(agent_id),
            "scope_key": None if scope is None else scope.key,
            "actor.run_id": run_id,
            "actor.name": actor,
            "actor.command": None if command is None else {"$regex": f"^(?:{words})(?: |$)"},
            "action": {"$in": list(actions)} if actions else None,
        }
        filter: Filter = {name: value for name, value in wanted.items() if value is not None}
        if since is not None or until is not None or not filter.keys() & _INDEXED:
            # Without an indexed filter, a bound on the time uses its index.
            first = at_or_after(since or EPOCH)
            filter["at"] = {**first, **({"$lt": until} if until is not None else {})}
        found = self._db.audit.find(filter, sort=_NEWEST)
        return islice(_list_shown(found, unreadable), limit)

    def audit_entry(self, entry_id: str) -> AuditEntry | None:
        return self.audit_entries([entry_id]).get(entry_id)

    def audit_entries(
        self, entry_ids: Sequence[str], *, unreadable: set[str] | None = None
    ) -> dict[str, AuditEntry]:
        found = self._db.find_by_ids(self._db.audit, entry_ids)
        return {entry.id: entry for entry in _list_shown(found, unreadable)}

    def stored_entries(self, entry_ids: Sequence[str]) -> dict[str, StoredEntry]:
        found = dict[str, StoredEntry]()
        for document in self._db.find_by_ids(self._db.audit, entry_ids):
            with suppress(*codec.UNREADABLE):
                entry = stored_entry_from(document)
                if entry.status != VOID:
                    found[entry.id] = entry
        return found

    def seals(self) -> Iterator[Seal]:
        for document in self._db.seals.find(EVERYTHING, sort=(("_id", 1),)):
            try:
                yield msgspec.convert(document, Seal)
            except msgspec.ValidationError as error:
                what = f"seal {document['_id']} cannot be read"
                raise DocumentDamaged(f"{what}: {error}") from error

    def add_seal(self, seal: Seal) -> bool:
        fields = msgspec.to_builtins(seal, builtin_types=(datetime,))
        times = {"createdAt": seal.at, "updatedAt": seal.at}
        try:
            self._db.seals.insert_one({"_id": seal.number, **fields, **times})
        except DuplicateKeyError:
            return False
        return True

    def find_audited(self, key: AuditKey, prefix: str, *, limit: int = 20) -> Sequence[str]:
        if not _PREFIX.match(prefix):
            return []
        low, high = prefix.ljust(24, "0"), prefix.ljust(24, "f")
        field, found = _FIELDS[key], list[str]()
        stored = str if key == "run" else object_id
        begins: Filter = {"$gte": stored(low)}
        # One query per ID, regardless of the number of its entries.
        while len(found) < limit:
            document = self._db.audit.find_one(
                {field: {**begins, "$lte": stored(high)}},
                {"target_id": 1, "actor.run_id": 1, "status": 1},
                sort=((field, 1),),
            )
            if document is None:
                break
            value = _value(document, key)
            begins = {"$gt": stored(value)}
            if key != "entry" or document.get("status") != VOID:
                found.append(value)
        return found


def _list_shown(documents: Iterable[Document], unreadable: set[str] | None) -> Iterator[AuditEntry]:
    """Read the entries that are not void; see `AuditLog.audit` for ``unreadable``."""
    for document in documents:
        try:
            entry = audit_from(document)
        except codec.UNREADABLE as error:
            id = str(document["_id"])
            if unreadable is None:
                raise DocumentDamaged(f"audit entry {id} cannot be read: {error}") from error
            unreadable.add(id)
            continue
        if entry.status != VOID:
            yield entry


def _value(document: Document, key: AuditKey) -> str:
    if key == "run":
        return str(document["actor"]["run_id"])
    return str(document["_id" if key == "entry" else "target_id"])
