"""Everything that is stored: read document by document, and written from a backup."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edenmem.models import integrity
from edenmem.models.backup import LoadResult, Record, RecordKind, Selection, Unreadable
from edenmem.models.forgetting import Passage
from edenmem.models.integrity import PresenceKind
from edenmem.store.sqlite.core.part import GIVEN, Part, json_array
from edenmem.store.sqlite.walk.dumping import Dump
from edenmem.store.sqlite.walk.loading import Loader
from edenmem.store.sqlite.walk.passages import read_passages
from edenmem.store.sqlite.walk.records import read_records

_PRESENT: dict[PresenceKind, str] = {
    "agent": f"SELECT id FROM agents WHERE id {GIVEN} AND NOT deleted",
    "person": (
        f"SELECT id FROM users WHERE id {GIVEN} AND NOT deleted UNION"
        f" SELECT eden_user_id FROM users WHERE eden_user_id {GIVEN} AND NOT deleted"
    ),
    "session": f"SELECT id FROM sessions WHERE id {GIVEN} AND NOT deleted",
    "group": f"SELECT DISTINCT group_id FROM sessions WHERE group_id {GIVEN} AND NOT deleted",
    "message": f"SELECT id FROM messages WHERE id {GIVEN}",
    "reflection": f"SELECT id FROM reflections WHERE id {GIVEN}",
    "consolidation": f"SELECT id FROM consolidations WHERE id {GIVEN}",
}


class Walk(Part):
    """See `edenmem.store.protocol.walk.Walk`."""

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        with self._db.reading() as connection:
            return {row[0] for row in connection.execute(_PRESENT[kind], (json_array(ids),))}

    def records(
        self, kind: integrity.RecordKind, *, agent_id: str | None = None
    ) -> Iterator[integrity.Record]:
        return read_records(self._db, kind, agent_id)

    def dump(
        self, kinds: Sequence[RecordKind], selection: Selection, *, with_vectors: bool = True
    ) -> Iterator[tuple[RecordKind, Record | Unreadable]]:
        with self._db.reading() as connection:
            yield from Dump(connection, selection, with_vectors).read(kinds)

    def load(
        self, kind: RecordKind, records: Sequence[Record], *, dry_run: bool = False
    ) -> list[LoadResult]:
        if dry_run:
            with self._db.reading() as connection:
                return Loader(connection, dry_run=True).load(kind, records)
        with self._db.writing() as connection:
            return Loader(connection, dry_run=False).load(kind, records)

    def passages(self) -> Iterator[Passage]:
        return read_passages(self._db)
