"""Export memory to a file of JSON Lines, by hand or as a scheduled backup.

A scheduled backup is verified, and then the oldest files of its series are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from edenmem.engine.exchange import records as lines
from edenmem.engine.exchange.checking import FileCheck
from edenmem.engine.exchange.files import (
    Source,
    open_compressor,
    open_partial,
    publish,
    remove_abandoned,
    save,
    sync_folder,
    write_error,
)
from edenmem.engine.exchange.records import Digest, is_whole
from edenmem.errors import DocumentDamaged, InputError, StoreError, UsageError
from edenmem.models.backup import (
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

    ``lost`` are the ranges of rows of a damaged file that cannot be read, by table; ``left_out``
    counts what another system has no place for, by name.
    """

    counts: dict[str, int]
    sha256: str = ""
    lost: tuple[tuple[str, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    left_out: dict[str, int] = {}

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
        if selection == Selection() and RecordKind.AUDIT in kinds:  # what runs wrote is in the log
            for run in self._store.migrations.migration_runs():
                put(lines.encode_mark(lines.LEDGER, run=msgspec.to_builtins(run)))
            try:
                for seal in self._store.log.seals():
                    put(lines.encode_mark(lines.SEAL, seal=msgspec.to_builtins(seal)))
            except DocumentDamaged as error:
                problems.append(("the seals after it", error.message))
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


def _bare(record: Record) -> Record:
    """Return a record without the vector of a removed fact."""
    if not isinstance(record, StoredVersion) or record.snapshot is None:
        return record
    snapshot = msgspec.structs.replace(record.snapshot, embedding=None, embedding_model=None)
    return msgspec.structs.replace(record, snapshot=snapshot)


_NAME = re.compile(r"edenmem-([0-9a-f]{12})-(\d{8}T\d{6}Z)(?:-(\d{1,4}))?\.jsonl\.gz")
_TIME = "%Y%m%dT%H%M%SZ"


class BackupFile(NamedTuple):
    """A scheduled backup, parsed from its file name. Newer files compare greater."""

    made_at: datetime
    copy: int
    path: Path
    series: str


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scheduled backup.

    ``damaged`` lists older files (path, reason) due for removal that failed verification.
    ``unsealed`` is the reason why the log was not sealed.
    """

    path: Path
    export: ExportReport
    removed: tuple[Path, ...] = ()
    damaged: tuple[tuple[Path, str], ...] = ()
    unsealed: str = ""


def backup_series(store: Store, request: ExportRequest) -> str:
    """Return the series of the backups of a store and selection.

    A recreated store must not remove the backups of the lost one.
    """
    first = store.migrations.schema()[0]
    parts = (store.database.info().location, request, first.name, first.applied_at)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]


def list_backups(folder: Path, *series: str, until: datetime) -> list[BackupFile]:
    """List the scheduled backups of some series, newest first.

    Files dated after ``until`` are skipped: a wrong clock would make them the newest forever.

    Raises:
        OSError: the folder cannot be read.
    """
    found = []
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None or name[1] not in series or path.is_symlink() or not path.is_file():
            continue
        with suppress(ValueError):
            made_at = datetime.strptime(name[2], _TIME).replace(tzinfo=UTC)
            found.append(BackupFile(made_at, int(name[3] or 1), path, name[1]))
    return sorted((each for each in found if each.made_at <= until), reverse=True)


def verify_backup(path: Path) -> str:
    """Compare a backup with its own checksums; return the error, or "".

    Raises:
        FileNotFoundError: the file no longer exists.
    """
    path.stat()
    try:
        with Source.open_file(str(path)) as source:
            FileCheck(source).verify()
    except InputError as error:
        return error.message
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""


class BackupWriter:
    """Write scheduled backups of one store."""

    def __init__(self, store: Store, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._clock = clock
        self._exporter = Exporter(store, clock=clock)

    def write(
        self,
        folder: Path,
        request: ExportRequest,
        *,
        keep: int = 0,
        progress: Callable[[int], None] = lambda done: None,
    ) -> BackupReport:
        """Write and verify a backup, then remove the oldest of its series beyond ``keep``.

        Nothing is removed if records could not be exported: an older file may contain them. Files
        of another database at the same location, and files dated in the future, are neither
        counted nor removed.

        Args:
            folder: The folder of the backups, created if missing.
            request: The selection to export.
            keep: Number of backups of this store and selection to keep (0 = all).
            progress: Called with the number of records written so far.

        Raises:
            UsageError: the selection depends on the time of the run.
            InputError: the folder cannot be written.
            DiskFull: the disk is full.
            StoreError: the written file is damaged.
        """
        if request.since is not None:
            raise UsageError("a scheduled backup cannot be limited by --since")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(folder, error) from error
        remove_abandoned(folder)
        series = backup_series(self._store, request)
        now = self._clock().astimezone(UTC)
        stem = f"edenmem-{series}-{now.strftime(_TIME)}"
        with open_partial(folder / stem) as raw:
            with open_compressor(raw, compress=True) as file:
                export = self._exporter.write(file, request, progress=progress)
            save(raw)
            _verify_written(Source(raw, stem), export, raw.fileno())
            path = _publish(Path(raw.name), folder, stem)
        sync_folder(folder)
        if not keep or export.problems:
            return BackupReport(path=path, export=export)
        known = list_backups(folder, series, until=now)
        older = [backup.path for backup in known if backup.path != path]
        removed, damaged = [], []
        for old in older[keep - 1 :]:
            try:
                reason = verify_backup(old)
                if not reason:
                    old.unlink()
            except FileNotFoundError:
                continue  # another run removed it
            except OSError as error:
                reason = f"cannot be removed: {error.strerror}"
            if reason:
                damaged.append((old, reason))
            else:
                removed.append(old)
        return BackupReport(
            path=path,
            export=export,
            removed=tuple(removed),
            damaged=tuple(damaged),
        )


def _verify_written(source: Source, export: ExportReport, descriptor: int) -> None:
    """Read a backup back, bypassing the page cache if possible."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        records = FileCheck(source).verify()
    except InputError as error:
        raise StoreError(
            f"the backup was written incorrectly: {error.message}",
            hint="check the disk; older backups were kept",
        ) from error
    if records != export.records:
        raise StoreError(f"the backup has {records:,} records instead of {export.records:,}")


def _publish(partial: Path, folder: Path, stem: str) -> Path:
    """Rename a file; add a number if another run of the same second has the name."""
    for copy in range(1, 1000):
        path = folder / f"{stem}{f'-{copy}' if copy > 1 else ''}.jsonl.gz"
        if publish(partial, path):
            return path
    raise InputError(f"too many backups within one second: {folder}")
