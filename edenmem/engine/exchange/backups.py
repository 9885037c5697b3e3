"""Backups on a schedule: one verified file a run, and the oldest beyond a number removed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from edenmem.engine.exchange.checking import Checker
from edenmem.engine.exchange.exporter import Exporter, ExportReport, ExportRequest
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
from edenmem.errors import InputError, StoreError, UsageError
from edenmem.models.ids import utc_now
from edenmem.store.protocol.store import Store

_NAME = re.compile(r"edenmem-([0-9a-f]{12})-(\d{8}T\d{6}Z)(?:-(\d{1,4}))?\.jsonl\.gz")
_TIME = "%Y%m%dT%H%M%SZ"


class BackupFile(NamedTuple):
    """A scheduled backup, as its name describes it. Later files compare greater."""

    made_at: datetime
    copy: int
    path: Path
    series: str


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduled backup did.

    ``damaged`` are older files (path, reason) that were due for removal, but failed verification.
    """

    path: Path
    export: ExportReport
    removed: tuple[Path, ...] = ()
    damaged: tuple[tuple[Path, str], ...] = ()


def backup_series(store: Store, request: ExportRequest) -> str:
    """Identify the backups of one store with one selection."""
    raw = msgspec.json.encode([store.database.info().location, request])
    return hashlib.sha256(raw).hexdigest()[:12]


def list_backups(folder: Path, *series: str) -> list[BackupFile]:
    """List the scheduled backups of some series, newest first.

    Raises:
        OSError: the folder cannot be read.
    """
    found = []
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None or name[1] not in series or path.is_symlink() or not path.is_file():
            continue
        try:
            made_at = datetime.strptime(name[2], _TIME).replace(tzinfo=UTC)
        except ValueError:
            continue
        found.append(BackupFile(made_at, int(name[3] or 1), path, name[1]))
    return sorted(found, reverse=True)


def verify_backup(path: Path) -> str:
    """Compare a backup with its own checksums; return what is wrong, or nothing.

    Raises:
        FileNotFoundError: the file no longer exists.
    """
    path.stat()
    try:
        with Source.open_file(str(path)) as source:
            Checker(source).verify()
    except InputError as error:
        return error.message
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""


class BackupWriter:
    """Writes scheduled backups of one store."""

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
        tell: Callable[[int], None] = lambda done: None,
    ) -> BackupReport:
        """Write and verify a backup, then remove the oldest of its series beyond ``keep``.

        Nothing is removed if records could not be exported: an older file may hold them.

        Args:
            folder: The folder of the backups; it is made if it does not exist.
            request: What to export.
            keep: How many backups of this store and selection to keep (0 = all).
            tell: Called with the number of records written so far.

        Raises:
            UsageError: the selection depends on the time of the run.
            InputError: the folder cannot be written.
            DiskFull: the disk has no room.
            StoreError: the file that was written differs from what it should be.
        """
        if request.since is not None:
            raise UsageError("a scheduled backup cannot be limited by --since")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(folder, error) from error
        remove_abandoned(folder)
        series = backup_series(self._store, request)
        stem = f"edenmem-{series}-{self._clock().astimezone(UTC).strftime(_TIME)}"
        with open_partial(folder / stem) as raw:
            with open_compressor(raw, compress=True) as file:
                export = self._exporter.write(file, request, tell=tell)
            save(raw)
            _verify_written(Source(raw, stem), export, raw.fileno())
            path = _publish(Path(raw.name), folder, stem)
        sync_folder(folder)
        if not keep or export.problems:
            return BackupReport(path=path, export=export)
        older = [backup.path for backup in list_backups(folder, series) if backup.path != path]
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
            path=path, export=export, removed=tuple(removed), damaged=tuple(damaged)
        )


def _verify_written(source: Source, export: ExportReport, descriptor: int) -> None:
    """Read a backup back, from the disk where the system allows it."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        records = Checker(source).verify()
    except InputError as error:
        raise StoreError(
            f"the backup differs from what was written: {error.message}",
            hint="check the disk; older backups were kept",
        ) from error
    if records != export.records:
        raise StoreError(f"the backup has {records:,} records instead of {export.records:,}")


def _publish(partial: Path, folder: Path, stem: str) -> Path:
    """Give a file its name, or the next one if another run of the same second has that."""
    for copy in range(1, 1000):
        path = folder / f"{stem}{f'-{copy}' if copy > 1 else ''}.jsonl.gz"
        if publish(partial, path):
            return path
    raise InputError(f"{folder} has too many backups of one second")
