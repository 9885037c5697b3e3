"""Export memory to a file of JSON Lines, by hand or as a scheduled backup.

A scheduled backup is verified, and then the oldest files of its series are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from edenmem.engine.exchange import records as lines
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
from edenmem.engine.exchange.records import Digest, FileCheck, is_whole
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.seals.sealer import Sealer
from edenmem.errors import DocumentDamaged, InputError, StoreError, UsageError
from edenmem.models.backup import Record, RecordKind, Selection, StoredVersion
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


def export_records(
    store: Store,
    file: IO[bytes],
    request: ExportRequest,
    *,
    clock: Callable[[], datetime] = utc_now,
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

    file.write(_header(store, request, kinds, clock()) + b"\n")
    selection = _selection(store, request, kinds)
    if selection == Selection() and RecordKind.AUDIT in kinds:  # what runs wrote is in the log
        for run in store.migrations.migration_runs():
            put(lines.encode_mark(lines.LEDGER, run=msgspec.to_builtins(run)))
        try:
            for seal in store.log.seals():
                put(lines.encode_mark(lines.SEAL, seal=msgspec.to_builtins(seal)))
        except DocumentDamaged as error:
            problems.append(("the seals after it", error.message))
    documents = store.walk.documents(
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
            mark = {"records": digest.records, "sha256": digest.sha256}
            put(lines.encode_mark(lines.CHECKPOINT, **mark))
        if digest.records % _PROGRESS == 0:
            progress(digest.records)
    end = {"records": digest.records, "counts": digest.counts, "sha256": digest.sha256}
    file.write(lines.encode_mark(lines.TRAILER, **end) + b"\n")
    return ExportReport(counts=digest.counts, sha256=digest.sha256, problems=tuple(problems))


def _header(
    store: Store, request: ExportRequest, kinds: Sequence[RecordKind], at: datetime
) -> bytes:
    from edenmem import __version__

    filters: dict[str, Any] = msgspec.to_builtins(request)
    del filters["types"], filters["vectors"]
    return lines.encode_mark(
        lines.HEADER,
        format=lines.FORMAT,
        edenmem=__version__,
        store=store.database.info().kind,
        created_at=at,
        types=list(kinds),
        filters={name: value for name, value in filters.items() if value},
        vectors=request.vectors,
    )


def _selection(store: Store, request: ExportRequest, kinds: Sequence[RecordKind]) -> Selection:
    """Return the selection, with the accounts that agents have memory of or talks with."""
    accounts = request.user_ids
    if accounts is None and request.agent_ids and RecordKind.USER in kinds:
        found: set[str] = set()
        for agent_id in request.agent_ids:
            texts = store.memory.scopes(agent_id=agent_id, kinds=[ScopeKind.USER])
            found.update(summary.scope.owner for summary in texts)
            for session in store.host.sessions(agent_id=agent_id):
                found.update(session.users)
        accounts = tuple(sorted(found))
    return Selection(
        agent_ids=request.agent_ids,
        user_ids=request.user_ids,
        account_ids=accounts,
        member_ids=request.user_ids or (),
        kinds=request.scopes,
        since=request.since,
    )


def salvage(
    runtime: Runtime,
    file: IO[bytes],
    request: ExportRequest,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> ExportReport:
    """Export what can be read of a damaged file, by way of a copy without the damage."""
    from edenmem.engine.factory import open_store

    replace, settings = msgspec.structs.replace, runtime.settings
    with tempfile.TemporaryDirectory(prefix="edenmem-") as folder:
        copy = Path(folder) / "salvaged.db"
        lost = runtime.store.database.salvage(copy)
        copied = replace(settings.store, uri=f"sqlite:///{copy}", read_only=False)
        store = open_store(replace(settings, store=copied))
        try:
            report = export_records(store, file, request, clock=runtime.clock, progress=progress)
        finally:
            store.database.close()
    return replace(report, lost=tuple((each.target_id, each.detail) for each in lost))


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


def back_up(
    runtime: Runtime,
    folder: Path,
    request: ExportRequest,
    *,
    keep: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> BackupReport:
    """Seal the log, write and verify a backup, and remove the oldest of its series over ``keep``.

    Nothing is removed if records could not be exported: an older file may contain them. Files
    of another database at the same location, and files dated in the future, are neither
    counted nor removed.

    Args:
        runtime: The store, and the clock.
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
    unsealed = Sealer(runtime).seal_if_possible()
    store, clock = runtime.store, runtime.clock
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    remove_abandoned(folder)
    series = backup_series(store, request)
    now = clock().astimezone(UTC)
    stem = f"edenmem-{series}-{now.strftime(_TIME)}"
    with open_partial(folder / stem) as raw:
        with open_compressor(raw, compress=True) as file:
            export = export_records(store, file, request, clock=clock, progress=progress)
        save(raw)
        _verify_written(Source(raw, stem), export, raw.fileno())
        path = _publish(Path(raw.name), folder, stem)
    sync_folder(folder)
    removed, damaged = list[Path](), list[tuple[Path, str]]()
    if keep and not export.problems:
        known = [each.path for each in list_backups(folder, series, until=now)]
        for old in [each for each in known if each != path][keep - 1 :]:
            try:
                reason = verify_backup(old)
                if not reason:
                    old.unlink()
                    removed.append(old)
            except FileNotFoundError:
                continue  # another run removed it
            except OSError as error:
                reason = f"cannot be removed: {error.strerror}"
            if reason:
                damaged.append((old, reason))
    return BackupReport(
        path=path,
        export=export,
        removed=tuple(removed),
        damaged=tuple(damaged),
        unsealed=unsealed,
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
