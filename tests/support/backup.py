"""The records of a store's backup."""

from __future__ import annotations

from collections.abc import Sequence

from edenmem.engine.exchange.exporter import backup_record
from edenmem.models.backup import Record, RecordKind, Selection
from edenmem.store.protocol.store import Store
from edenmem.store.protocol.walk import ALL


def dump(
    store: Store,
    kinds: Sequence[RecordKind],
    selection: Selection = ALL,
    *,
    with_vectors: bool = True,
) -> list[tuple[RecordKind, Record]]:
    """Return the records of a store, which must all be readable."""
    found = []
    for document in store.walk.documents(
        kinds, selection, with_vectors=with_vectors, snapshot=True, unwritten=True
    ):
        assert document.record is not None, document
        record = backup_record(document.record, whole=True)
        if record is not None:
            found.append((document.kind, record))
    return found
