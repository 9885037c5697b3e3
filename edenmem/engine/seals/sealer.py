"""Seal the log, and compare it with its seals.

All functions block. A seal covers the entries that are committed and in no seal yet, by ID and not
by time: an entry may be committed after later ones. Writers are not slowed: only the number of a
seal is contended for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.seals.hashes import (
    NO_SEAL,
    Header,
    Restore,
    SealFile,
    hash_entry,
    hash_fields,
    header_of,
    iso,
    make_seal,
    path_of,
    plain_fields,
    root_of,
)
from edenmem.errors import ConflictError, EdenmemError, StoreReadOnly, UsageError
from edenmem.models.backup import RecordKind
from edenmem.models.records import Seal, SealedEntry, StoredEntry
from edenmem.store.protocol.store import Store, batched

#: Entries in one seal, which must fit into one document.
_SIZE = 4096
_ATTEMPTS = 5
#: An entry may be committed later than its time, such as after a crash.
_LATE = timedelta(hours=1)
_RESTORED = (
    "seals {first} to {last} are in the file and not in the store: it was restored from a backup"
    " (accept with --accept-restore {agreed}), or the log was cut or replaced"
)
#: The fields that an erasure empties, by its mark.
_COVERED = {"content": {"content", "users", "reason"}, "users": {"users"}}


class SealReport(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of entries in new seals and in all seals, and the last seal.

    ``written`` is the number of seals appended to ``file``.
    """

    entries: int
    sealed: int
    last: Header | None
    file: str = ""
    written: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the log from outside, in a seal, and of which entry ("": of the seal itself)."""

    seal: int
    entry: str = ""
    what: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The log compared with its seals.

    ``unsealed`` entries are in no seal yet. ``late`` are the entries that were sealed, or wait for
    it, although an earlier seal is at least an hour younger: they were written late, or inserted.
    ``unwritten`` seals are missing in ``file``.
    """

    seals: int
    sealed: int
    unsealed: int
    last: Header | None
    late: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    file: str = ""
    unwritten: int = 0


def walk_entries(store: Store) -> Iterator[StoredEntry]:
    """Yield all readable entries of the log, by ID."""
    for document in store.walk.documents((RecordKind.AUDIT,)):
        if isinstance(document.record, StoredEntry) and document.record.status == "done":
            yield document.record


def hash_marks(marks: list[str]) -> str:
    """Return the hash of what one erasure emptied: "ENTRY/FIELD", sorted, one per line."""
    return hashlib.sha256("\n".join(sorted(marks)).encode()).hexdigest()


def hash_emptied(store: Store, run_id: str) -> str:
    """Return the hash of what an erasure emptied in the log, which its entry carries."""
    return hash_marks(
        [
            f"{entry.id}/{field}"
            for entry in walk_entries(store)
            for field, run in _marks(entry)
            if run == run_id
        ]
    )


def _marks(entry: StoredEntry) -> Iterator[tuple[str, str]]:
    for mark in entry.erased:
        field, _, run = mark.partition("/")
        yield field, run


class Sealer:
    """Seal the log of a store.

    ``file`` arguments name the file of seals (None: ``backup.seal_file``).
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._log = runtime.store.log
        self._clock = runtime.clock
        self._actor = runtime.find_actor
        self._file = runtime.settings.backup.seal_file

    def _open(self, file: str | None) -> SealFile | None:
        path = self._file if file is None else file
        return SealFile(path) if path else None

    # -- sealing -----------------------------------------------------------------------------

    def seal(self, file: str | None = None) -> SealReport:
        """Seal all entries that are in no seal yet, and append missing seals to the file.

        Raises:
            ConflictError: the seals of the store do not continue those of the file, or others
                seal the log at the same time.
            InputError: the file is damaged, or cannot be written.
        """
        kept = self._open(file)
        for _ in range(_ATTEMPTS):
            known = set[str]()
            headers: list[Header] = []
            for seal in self._log.seals():
                known.update(each.id for each in seal.entries)
                headers.append(header_of(seal))
            if kept is not None and _agreed(kept, headers) < len(kept.seals):
                raise ConflictError(
                    f"the seals of the store do not continue those of {kept.path}",
                    hint="see 'edenmem log verify'",
                )
            before = len(headers)
            if self._add_seals(known, headers):
                break
        else:
            raise ConflictError("the log is being sealed by others", hint="try again")
        missing = headers[len(kept.seals) :] if kept is not None else []
        if kept is not None:
            kept.append(missing)
        return SealReport(
            entries=sum(each.entries for each in headers[before:]),
            sealed=sum(each.entries for each in headers),
            last=headers[-1] if headers else None,
            file=str(kept.path) if kept is not None else "",
            written=len(missing),
        )

    def _add_seals(self, known: set[str], headers: list[Header]) -> bool:
        """Seal what is not ``known``; return False if another process has sealed meanwhile."""
        entries = ((each.at, each.id) for each in walk_entries(self._store) if each.id not in known)
        now = self._clock()
        for batch in batched(sorted(entries), _SIZE):
            found = self._log.stored_entries([id for _, id in batch])
            here = [found[id] for _, id in batch if id in found]
            seal = make_seal(here, headers[-1] if headers else None, now)
            if not self._log.add_seal(seal):
                return False
            headers.append(header_of(seal))
        return True

    def seal_if_possible(self) -> str:
        """Seal the log; return the reason why not, or "" (also for a read-only store)."""
        try:
            self.seal()
        except StoreReadOnly:
            return ""
        except EdenmemError as error:
            return f"the log was not sealed: {error.message}"
        return ""

    def take(self, seals: Iterable[Seal]) -> None:
        """Store the seals of a backup that continue those of the store."""
        headers = [header_of(each) for each in self._log.seals()]
        for seal in seals:
            header = header_of(seal)
            if header in headers:
                continue
            last = headers[-1].hash if headers else NO_SEAL
            if header.previous != last or not header.is_whole or not self._log.add_seal(seal):
                return  # the store has a history of its own
            headers.append(header)

    # -- verifying ---------------------------------------------------------------------------

    def verify(self, file: str | None = None) -> Verification:
        """Compare the log with its seals, and the seals with the file.

        Raises:
            InputError: the file is damaged.
            DocumentDamaged: a seal is unreadable.
        """
        kept = self._open(file)
        check = _Check(self._store)
        for seal in self._log.seals():
            check.compare(seal)
        check.walk()
        headers, unwritten = check.headers, 0
        problems = list(check.problems())
        if kept is not None:
            agreed = _agreed(kept, headers)
            unwritten = len(headers) - agreed
            if agreed < len(kept.seals):
                what = _RESTORED.format(first=agreed + 1, last=len(kept.seals), agreed=agreed)
                problems.append(Problem(seal=agreed + 1, what=what))
        return Verification(
            seals=len(headers),
            sealed=sum(each.entries for each in headers),
            unsealed=check.unsealed,
            last=headers[-1] if headers else None,
            late=tuple(check.late),
            problems=tuple(problems),
            file=str(kept.path) if kept is not None else "",
            unwritten=unwritten,
        )

    def accept_restore(self, seal: str, file: str | None = None) -> None:
        """Accept that the store was restored from a backup of the time of a seal.

        Args:
            seal: The number of the last seal that the store and the file have in common, or the
                beginning of its hash; "0" for none.
            file: The file of seals.

        Raises:
            UsageError: there is no file, nothing to accept, or another seal is the last one.
        """
        kept = self._open(file)
        if kept is None:
            raise UsageError("no file of seals", hint="add --file, or set backup.seal_file")
        headers = [header_of(each) for each in self._log.seals()]
        last = _agreed(kept, headers)
        if last == len(kept.seals):
            raise UsageError("the store has all seals of the file; nothing to accept")
        hash = kept.hash_at(last)
        if seal != str(last) and not (len(seal) >= 8 and hash.startswith(seal)):
            raise UsageError(
                f"the last seal that the store and the file have in common is {last}, not {seal}",
                hint=f"--accept-restore {last} drops {len(kept.seals) - last} from the file",
            )
        at, by = iso(self._clock()), self._actor().name
        kept.append([Restore(number=last, hash=hash, at=at, by=by)])
        kept.append(headers[last:])

    # -- proofs ------------------------------------------------------------------------------

    def prove(self, entry_id: str) -> dict[str, Any] | None:
        """Return the proof that an entry is sealed (see `receipts`), or None."""
        for seal in self._log.seals():
            ids = [each.id for each in seal.entries]
            if entry_id in ids:
                entry = self._log.stored_entries([entry_id])[entry_id]
                place = ids.index(entry_id)
                return {
                    "entry": plain_fields(entry),
                    "content": entry.values.get("content"),
                    "salt": entry.salts.get("content", ""),
                    "fields": seal.entries[place].fields,
                    "path": path_of([each.leaf for each in seal.entries], place),
                    "seal": msgspec.to_builtins(header_of(seal)),
                }
        return None


def _agreed(kept: SealFile, headers: list[Header]) -> int:
    """Return the number of the last seal that the store and the file have in common."""
    number = 0
    for here, there in zip(headers, kept.seals, strict=False):
        if here.hash != there.hash:
            break
        number = here.number
    return number


class _Check:
    """The comparison of the log with its seals."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: list[Problem] = []
        self._sealed = set[str]()
        self._emptied: list[tuple[int, StoredEntry, set[str]]] = []
        #: Sealed erasures: run → number of the seal, and hash of what it emptied.
        self._erasures: dict[str, tuple[int, str]] = {}
        #: Targets of sealed sweeps.
        self._swept = set[str]()
        self._runs: dict[str, list[str]] = {}
        self._earlier: datetime | None = None
        self._last_at: datetime | None = None
        self.headers: list[Header] = []
        self.late: list[str] = []
        self.unsealed = 0

    def compare(self, seal: Seal) -> None:
        """Compare the next seal with the seal before, and with its entries."""
        header = header_of(seal)
        before = self.headers[-1] if self.headers else None
        expected = (before.number + 1, before.hash) if before else (1, NO_SEAL)
        if (header.number, header.previous) != expected or not header.is_whole:
            self._note(header.number, "", "the seal was changed, or a seal before it removed")
        if root_of([each.leaf for each in seal.entries]) != seal.root:
            self._note(header.number, "", "the seal's list of entries was changed")
        self.headers.append(header)
        if self._last_at is not None and self._last_at < seal.at:
            self._earlier = self._last_at
        self._last_at = seal.at
        found = self._store.log.stored_entries([each.id for each in seal.entries])
        for sealed in seal.entries:
            self._sealed.add(sealed.id)
            entry = found.get(sealed.id)
            if entry is None:
                self._note(seal.number, sealed.id, "removed, or made unreadable")
            else:
                self._compare_entry(seal.number, sealed, entry)

    def _compare_entry(self, number: int, sealed: SealedEntry, entry: StoredEntry) -> None:
        here = hash_fields(entry)
        differ = {
            name for name in {*here, *sealed.fields} if here.get(name) != sealed.fields.get(name)
        }
        emptied = differ - here.keys()
        changed = sorted(differ - emptied)
        if entry.salts.keys() != here.keys():
            changed.append("salts")
        if hash_entry(plain_fields(entry), sealed.fields) != sealed.leaf:
            changed.append("time, action, status or change set")
        if changed:
            self._note(number, entry.id, f"changed: {', '.join(changed)}")
        if emptied:
            self._emptied.append((number, entry, emptied))
        if entry.action == "forget" and not differ:
            if "content" in here:
                self._erasures[entry.id] = (number, str((entry.after or {}).get("emptied")))
            else:
                self._swept.add(entry.target_id)
        self._note_time(entry, self._earlier)

    def _note_time(self, entry: StoredEntry, sealed_at: datetime | None) -> None:
        if sealed_at is not None and entry.at < sealed_at - _LATE:
            self.late.append(entry.id)

    def _note(self, seal: int, entry: str, what: str) -> None:
        self._found.append(Problem(seal=seal, entry=entry, what=what))

    def walk(self) -> None:
        """Read the log as it is now, after all seals."""
        for entry in walk_entries(self._store):
            for field, run in _marks(entry):
                self._runs.setdefault(run, []).append(f"{entry.id}/{field}")
            if entry.id not in self._sealed:
                self.unsealed += 1
                self._note_time(entry, self._last_at)

    def problems(self) -> Iterator[Problem]:
        """Yield what was changed from outside."""
        yield from self._found
        valid = set[str]()
        for run, (number, emptied_hash) in self._erasures.items():
            if hash_marks(self._runs.get(run, [])) == emptied_hash:
                valid.add(run)
            else:
                what = "the log differs from what this erasure emptied"
                yield Problem(seal=number, entry=run, what=what)
        for number, entry, emptied in self._emptied:
            covered = set[str]()
            for field, run in _marks(entry):
                if run in valid or entry.target_id in self._swept:
                    covered |= _COVERED.get(field, set())
            if left := sorted(emptied - covered):
                yield Problem(
                    seal=number,
                    entry=entry.id,
                    what=f"emptied without a sealed erasure: {', '.join(left)}",
                )
