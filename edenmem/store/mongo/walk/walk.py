"""Read everything stored, for backups, checks and surveys, and load backups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edenmem.models.backup import Document, LoadResult, Record, RecordKind, Selection
from edenmem.models.integrity import PresenceKind
from edenmem.models.records import AuditEntry
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import NOT_DELETED, Filter, id_parts
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.core.transactions import Transactions
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.walk.aside import put_back, set_aside
from edenmem.store.mongo.walk.documents import walk_documents
from edenmem.store.mongo.walk.loader import RecordLoader
from edenmem.store.protocol.host import Host
from edenmem.store.protocol.memory import Memory
from edenmem.store.protocol.walk import ALL

_ONLY_ID = {"_id": 1}


class MongoWalk:
    """Implements `edenmem.store.protocol.walk.Walk`."""

    def __init__(
        self,
        db: Connection,
        readiness: Readiness,
        transactions: Transactions,
        slots: Slots,
        host: Host,
        memory: Memory,
    ) -> None:
        self._db = db
        self._transactions = transactions
        self._loader = RecordLoader(db, readiness, slots, host, memory)

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection = ALL,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[Document]:
        """See `Walk.documents`."""
        return walk_documents(
            self._db, kinds, selection, with_vectors=with_vectors, unwritten=unwritten
        )

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """See `Walk.present`."""
        match kind:
            case "agent":
                return self._with_ids(self._db.users, ids, {"type": "agent", **NOT_DELETED})
            case "person":
                return self._persons(ids)
            case "session":
                return self._with_ids(self._db.sessions, ids, NOT_DELETED)
            case "group":
                groups = list(dict.fromkeys(ids))
                living = {"group_id": {"$in": groups}, **NOT_DELETED}
                return set(self._db.sessions.distinct("group_id", living))
            case "message":
                return self._with_ids(self._db.messages, ids)
            case "reflection":
                return self._with_ids(self._db.reflections, ids)
            case "consolidation":
                return self._with_ids(self._db.consolidated, ids)

    def _with_ids(
        self, collection: Collection, ids: Sequence[str], condition: Filter | None = None
    ) -> set[str]:
        found = self._db.find_by_ids(collection, ids, _ONLY_ID, **(condition or {}))
        return {str(document["_id"]) for document in found}

    def _persons(self, ids: Sequence[str]) -> set[str]:
        person: Filter = {"type": "user", **NOT_DELETED}
        found = self._with_ids(self._db.users, ids, person)
        # Few people lack an account with their own ID; these are found through linked accounts.
        aliases = [
            {**person, "eden_user_id": {"$in": [*part, *map(str, part)]}}
            for part in id_parts(each for each in ids if each not in found)
        ]
        for account in self._db.find_all(self._db.users, aliases, {"eden_user_id": 1}):
            found.add(str(account["eden_user_id"]))
        return found

    def set_aside(self, entry: AuditEntry) -> bool:
        """See `Walk.set_aside`."""
        return set_aside(self._transactions, entry)

    def put_back(self, entry: AuditEntry, undo: AuditEntry) -> bool:
        """See `Walk.put_back`."""
        return put_back(self._transactions, entry, undo)

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        """See `Walk.load`."""
        return self._loader.load(kind, records, dry_run=dry_run)
