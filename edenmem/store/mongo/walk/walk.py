"""Everything that is stored: read for backups, checks and surveys, and loaded from a backup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edenmem.models import integrity
from edenmem.models.backup import Document, LoadResult, Record, RecordKind, Selection, Unreadable
from edenmem.models.forgetting import Passage
from edenmem.models.integrity import PresenceKind
from edenmem.store.common import documents as common
from edenmem.store.mongo.core.collection import Collection
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter, id_parts
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.host.contexts import CONTEXT_FIELDS
from edenmem.store.mongo.host.host_codec import sub_document
from edenmem.store.mongo.search.slots import Slots
from edenmem.store.mongo.walk.documents import demand_decoded, walk_documents
from edenmem.store.mongo.walk.loading import RecordLoader
from edenmem.store.protocol.host import Host
from edenmem.store.protocol.memory import Memory

_LIVING: Filter = {"deleted": {"$ne": True}}
_ONLY_ID = {"_id": 1}
#: The kinds that hold texts: first memory as it is, since a finding shows what was found first.
_WITH_TEXTS = (
    RecordKind.FACT,
    RecordKind.REFLECTION,
    RecordKind.CONSOLIDATION,
    RecordKind.POLICY,
    RecordKind.HISTORY,
    RecordKind.AUDIT,
    RecordKind.FORMATION,
)


class MongoWalk:
    """Implements `edenmem.store.protocol.walk.Walk`."""

    def __init__(
        self, db: Connection, readiness: Readiness, slots: Slots, host: Host, memory: Memory
    ) -> None:
        self._db = db
        self._loader = RecordLoader(db, readiness, slots, host, memory)

    def documents(
        self,
        kinds: Sequence[RecordKind],
        selection: Selection,
        *,
        with_vectors: bool = False,
        snapshot: bool = False,
        unwritten: bool = False,
    ) -> Iterator[Document]:
        """See `Walk.documents`. Each document is of one moment, whatever ``snapshot`` asks for.
        ``unwritten``: history as versions, see `walk_documents`."""
        found = walk_documents(
            self._db, kinds, selection, with_vectors=with_vectors, unwritten=unwritten
        )
        return (each.document for each in found)

    def records(
        self, kind: integrity.RecordKind, *, agent_id: str | None = None
    ) -> Iterator[integrity.Record]:
        """See `Walk.records`."""
        selection = Selection(agent_ids=() if agent_id is None else (agent_id,))
        return common.records_of_integrity(self.documents([RecordKind(kind)], selection))

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        """See `Walk.present`."""
        match kind:
            case "agent":
                return self._with_ids(self._db.users, ids, {"type": "agent", **_LIVING})
            case "person":
                return self._persons(ids)
            case "session":
                return self._with_ids(self._db.sessions, ids, _LIVING)
            case "group":
                groups = list(dict.fromkeys(ids))
                living = {"group_id": {"$in": groups}, **_LIVING}
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
        filters = [{"_id": {"$in": part}, **(condition or {})} for part in id_parts(ids)]
        return {str(found["_id"]) for found in self._db.find_all(collection, filters, _ONLY_ID)}

    def _persons(self, ids: Sequence[str]) -> set[str]:
        person: Filter = {"type": "user", **_LIVING}
        found = self._with_ids(self._db.users, ids, person)
        # Few have no account of that very id; those are looked for among all others' people.
        aliases = [
            {**person, "eden_user_id": {"$in": [*part, *map(str, part)]}}
            for part in id_parts(each for each in ids if each not in found)
        ]
        for account in self._db.find_all(self._db.users, aliases, {"eden_user_id": 1}):
            found.add(str(account["eden_user_id"]))
        return found

    def dump(
        self, kinds: Sequence[RecordKind], selection: Selection, *, with_vectors: bool = True
    ) -> Iterator[tuple[RecordKind, Record | Unreadable]]:
        """See `Walk.dump`."""
        return common.records_of_backup(
            self.documents(kinds, selection, with_vectors=with_vectors, unwritten=True)
        )

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        """See `Walk.load`."""
        return self._loader.load(kind, records, dry_run=dry_run)

    def passages(self) -> Iterator[Passage]:
        """See `Walk.passages`."""
        for kind in _WITH_TEXTS:
            found = walk_documents(self._db, (kind,), Selection())
            yield from common.passages_of(demand_decoded(found))
        yield from self._context_passages()

    def _context_passages(self) -> Iterator[Passage]:
        seen = {"memory_context": 1, "edenmem_contexts": 1}
        for document, _ in self._db.sessions.walk_by_id({}, seen):
            cached = [sub_document(document.get("memory_context")).get(CONTEXT_FIELDS[0])]
            for kept in sub_document(document.get("edenmem_contexts")).values():
                cached.append(sub_document(kept).get("xml"))
            session_id = str(document["_id"])
            for xml in cached:
                if isinstance(xml, str) and xml:
                    yield Passage(
                        place="context",
                        id=session_id,
                        target_type="session",
                        target_id=session_id,
                        text=xml,
                    )
