"""Export memory to a file of JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import IO, Any

import msgspec

from edenmem.engine.exchange import records as lines
from edenmem.engine.exchange.records import Digest
from edenmem.errors import UsageError
from edenmem.models.backup import (
    OF_SCOPES,
    Record,
    RecordKind,
    Selection,
    StoredVersion,
)
from edenmem.models.changes import AuditEntry
from edenmem.models.ids import utc_now
from edenmem.models.memory import Consolidation, Fact
from edenmem.models.scope import ScopeKind
from edenmem.store.protocol.store import Store

#: The status of an audit entry whose change was applied.
_DONE = "done"
#: Number of records between progress reports.
_PROGRESS = 200


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The selection to export; an empty filter selects everything.

    ``types`` are the kinds of records; by default all that the other filters allow.
    """

    agent_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] | None = None
    scopes: tuple[ScopeKind, ...] = ()
    types: tuple[RecordKind, ...] = ()
    since: datetime | None = None
    vectors: bool = True


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The exported records by type, and ``problems`` (ID, reason) with others.

    ``lost`` are the ranges of rows of a damaged file that cannot be read, by table.
    """

    counts: dict[str, int]
    sha256: str = ""
    lost: tuple[tuple[str, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def records(self) -> int:
        """Return the number of exported records."""
        return sum(self.counts.values())


def backup_record(record: Record, *, whole: bool) -> Record | None:
    """Return a stored record as a backup contains it, or None.

    A backup has no unapplied changes, no buffers, and no model without a vector. A scope with only
    a buffer is part of whole backups.
    """
    if isinstance(record, Fact):  # by far the most
        if record.embedding is None and record.embedding_model is not None:
            return msgspec.structs.replace(record, embedding_model=None)
        return record
    if isinstance(record, Consolidation):
        if not record.version and not whole:
            return None  # importing its reflections creates the buffer
        updated_at = record.updated_at if record.version else None  # a buffer has no time
        return msgspec.structs.replace(record, unabsorbed_ids=(), updated_at=updated_at)
    if isinstance(record, AuditEntry) and record.status != _DONE:
        return None
    return record


class Exporter:
    """Export the memory of one store, record by record."""

    def __init__(self, store: Store, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._clock = clock

    def write(
        self,
        file: IO[bytes],
        request: ExportRequest,
        *,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ExportReport:
        """Write header, records and trailer; ``progress`` is called with the number of records.

        Raises:
            UsageError: a type cannot be combined with the other filters.
        """
        kinds = select_types(request)
        whole = is_whole(kinds)
        digest, problems = Digest(), list[tuple[str, str]]()

        def put(line: bytes) -> None:
            digest.add(line)
            file.write(line + b"\n")

        file.write(self._header(request, kinds) + b"\n")
        selection = self._selection(request, kinds)
        documents = self._store.walk.documents(
            kinds, selection, with_vectors=request.vectors, snapshot=True, unwritten=True
        )
        for document in documents:
            kind = document.kind
            if document.record is None:
                problems.append((f"{kind} {document.id}", document.fault))
                continue
            record = backup_record(document.record, whole=whole)
            if record is None:
                continue
            put(lines.encode(kind, record if request.vectors else _bare(record)))
            digest.count(kind)
            if digest.records % lines.STEP == 0:
                put(
                    lines.encode_mark(
                        lines.CHECKPOINT, records=digest.records, sha256=digest.sha256
                    )
                )
            if digest.records % _PROGRESS == 0:
                progress(digest.records)
        file.write(
            lines.encode_mark(
                lines.TRAILER,
                records=digest.records,
                counts=digest.counts,
                sha256=digest.sha256,
            )
            + b"\n"
        )
        return ExportReport(counts=digest.counts, sha256=digest.sha256, problems=tuple(problems))

    def _header(self, request: ExportRequest, kinds: Sequence[RecordKind]) -> bytes:
        from edenmem import __version__

        filters: dict[str, Any] = msgspec.to_builtins(request)
        del filters["types"], filters["vectors"]
        return lines.encode_mark(
            lines.HEADER,
            format=lines.FORMAT,
            edenmem=__version__,
            store=self._store.database.info().kind,
            created_at=self._clock(),
            types=list(kinds),
            filters={name: value for name, value in filters.items() if value},
            vectors=request.vectors,
        )

    def _selection(self, request: ExportRequest, kinds: Sequence[RecordKind]) -> Selection:
        selection = Selection(
            agent_ids=request.agent_ids,
            user_ids=request.user_ids,
            kinds=request.scopes,
            since=request.since,
        )
        if request.user_ids is not None:
            accounts = request.user_ids
            return msgspec.structs.replace(selection, account_ids=accounts, member_ids=accounts)
        if request.agent_ids and RecordKind.USER in kinds:
            accounts = self._accounts_of(request.agent_ids)
            return msgspec.structs.replace(selection, account_ids=accounts)
        return selection

    def _accounts_of(self, agent_ids: Sequence[str]) -> tuple[str, ...]:
        """Return the users that these agents have memory of or conversations with."""
        found: dict[str, None] = {}
        for agent_id in agent_ids:
            for summary in self._store.memory.scopes(agent_id=agent_id, kinds=[ScopeKind.USER]):
                found[summary.scope.owner] = None
            for session in self._store.host.sessions(agent_id=agent_id):
                found |= dict.fromkeys(session.users)
        return tuple(sorted(found))


def select_types(request: ExportRequest) -> tuple[RecordKind, ...]:
    """Return the kinds of records that a request selects.

    Raises:
        UsageError: a type cannot be combined with the other filters.
    """
    whole = request.user_ids is not None or bool(request.scopes)
    excluded = {RecordKind.FORMATION, RecordKind.USAGE} if whole else set()
    if request.scopes:
        excluded |= {RecordKind.SESSION, RecordKind.MESSAGE}
    for kind in request.types:
        if kind in excluded:
            raise UsageError(
                f"--type {kind} cannot be combined with --user or --scope",
                hint="its records belong to whole conversations, not to one scope",
            )
    wanted = set(request.types) or set(RecordKind) - excluded
    return tuple(kind for kind in RecordKind if kind in wanted)


def is_whole(kinds: Sequence[str]) -> bool:
    """Return whether a file of these kinds contains its own history, and is restored unchanged."""
    memory = {kind.value for kind in OF_SCOPES}
    return not memory & set(kinds) or {"audit", "history"} <= set(kinds)


def _bare(record: Record) -> Record:
    """Return a record without the vector of a removed fact."""
    if not isinstance(record, StoredVersion) or record.snapshot is None:
        return record
    snapshot = msgspec.structs.replace(record.snapshot, embedding=None, embedding_model=None)
    return msgspec.structs.replace(record, snapshot=snapshot)
