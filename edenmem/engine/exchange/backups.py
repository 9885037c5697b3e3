"""Scheduled backups: write and verify one file per run, and remove the oldest ones."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
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
_HALF = 6  # characters of a series for the location, and for the database


class BackupFile(NamedTuple):
    """A scheduled backup, parsed from its file name. Newer files compare greater."""

    made_at: datetime
    copy: int
    path: Path
    series: str


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scheduled backup.

    ``damaged`` lists older files (path, reason) due for removal that failed verification.
    ``former`` counts backups of a previous database at the same location, or with names of an
    earlier edenmem version.
    """

    path: Path
    export: ExportReport
    removed: tuple[Path, ...] = ()
    damaged: tuple[tuple[Path, str], ...] = ()
    former: int = 0


def backup_series(store: Store, request: ExportRequest) -> str:
    """Return the series of the backups of a store and selection.

    The first half identifies the location and the selection, the second half the current database:
    a recreated store must not remove the backups of the lost one.
    """
    place = _hash(store.database.info().location, request)
    first = store.migrations.schema()[0]
    return place[:_HALF] + _hash(first.name, first.applied_at)[:_HALF]


def _hash(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def list_backups(folder: Path, *series: str, until: datetime) -> list[BackupFile]:
    """List the scheduled backups of some series, newest first.

    Files dated after ``until`` are skipped: a wrong clock would make them the newest forever.

    Raises:
        OSError: the folder cannot be read.
    """
    return sorted(
        (each for each in _all_backups(folder) if each.series in series and each.made_at <= until),
        reverse=True,
    )


def _all_backups(folder: Path) -> Iterator[BackupFile]:
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None or path.is_symlink() or not path.is_file():
            continue
        try:
            made_at = datetime.strptime(name[2], _TIME).replace(tzinfo=UTC)
        except ValueError:
            continue
        yield BackupFile(made_at, int(name[3] or 1), path, name[1])


def _count_former(folder: Path, series: str) -> int:
    """Count the backups of the same location and selection, but of another database."""
    place = series[:_HALF]
    return sum(
        each.series.startswith(place) and each.series != series for each in _all_backups(folder)
    )


def verify_backup(path: Path) -> str:
    """Compare a backup with its own checksums; return the error, or "".

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
            former=_count_former(folder, series),
        )


def _verify_written(source: Source, export: ExportReport, descriptor: int) -> None:
    """Read a backup back, bypassing the page cache if possible."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        records = Checker(source).verify()
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
