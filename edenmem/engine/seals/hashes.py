"""Hashes of seals, receipts that can be checked without the database, and the file of seals.

How a seal is made; "JSON" has sorted keys and no spaces:

- A field that an erasure may empty has the hash HMAC-SHA-256(salt, JSON of [field, value]), of
  which 32 hex digits are kept. Without the salt, which is erased with the field, a guess
  cannot be tested.
- The leaf of an entry is SHA-256(0x00, JSON of its other fields and these hashes), 32 hex digits.
- The root is that of a binary Merkle tree over the leaves by time and ID: SHA-256(0x01, left,
  right); the last of an odd number moves up.
- The hash of a seal is SHA-256(JSON of [number, time, entries, root, hash of the seal before]).
- The entry of an erasure has SHA-256(JSON of its receipt without "sealed").

The file of seals is outside the database, with one line for each seal and each accepted restore. An
attacker with the database and without this file cannot make seals that continue its seals.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from edenmem.errors import DiskFull, InputError, is_disk_full, unreadable
from edenmem.models.forgetting import SubjectKind
from edenmem.models.ids import as_utc
from edenmem.models.records import Seal, SealedEntry, StoredEntry
from edenmem.settings.paths import lock, open_private

#: The value in place of the hash of a seal before the first.
NO_SEAL = ""
_SHORT = 32


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic", enc_hook=str)


def iso(moment: datetime) -> str:
    """Format a time as seals have it: UTC, to the millisecond."""
    return as_utc(moment).isoformat(timespec="milliseconds")


def hash_field(name: str, value: Any, salt: str) -> str:
    """Return the hash of an erasable field."""
    return hmac.digest(salt.encode(), _json([name, value]), "sha256").hex()[:_SHORT]


def hash_fields(entry: StoredEntry) -> dict[str, str]:
    """Return the hashes of the erasable fields that are not empty."""
    return {
        name: hash_field(name, value, entry.salts.get(name, ""))
        for name, value in entry.values.items()
    }


def hash_receipt(receipt: Mapping[str, Any]) -> str:
    """Return the hash of a receipt without its proof, which the entry of the erasure carries."""
    told = {name: value for name, value in receipt.items() if name != "sealed"}
    return hashlib.sha256(_json(told)).hexdigest()


def plain_fields(entry: StoredEntry) -> dict[str, Any]:
    """Return the fields of an entry that are never erased."""
    return {
        "id": entry.id,
        "change_set_id": entry.change_set_id,
        "at": iso(entry.at),
        "place": entry.place,
        "action": entry.action,
        "status": entry.status,
        "undoes": entry.undoes,
    }


def hash_entry(plain: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    """Return the leaf of an entry."""
    return hashlib.sha256(b"\0" + _json([plain, fields])).hexdigest()[:_SHORT]


def seal_entry(entry: StoredEntry) -> SealedEntry:
    """Return an entry as a seal has it."""
    fields = hash_fields(entry)
    return SealedEntry(id=entry.id, leaf=hash_entry(plain_fields(entry), fields), fields=fields)


def _join(level: Sequence[str]) -> list[str]:
    pairs = [level[place : place + 2] for place in range(0, len(level), 2)]
    return [
        hashlib.sha256(b"\1" + bytes.fromhex(pair[0]) + bytes.fromhex(pair[1])).hexdigest()
        if len(pair) == 2
        else pair[0]
        for pair in pairs
    ]


def root_of(leaves: Sequence[str]) -> str:
    """Return the root of a tree; "" of none."""
    level = list(leaves)
    while len(level) > 1:
        level = _join(level)
    return level[0] if level else ""


def path_of(leaves: Sequence[str], place: int) -> list[list[str]]:
    """Return the way from a leaf to the root: side ("left" or "right") and hash of each sibling."""
    level, path = list(leaves), list[list[str]]()
    while len(level) > 1:
        sibling = place ^ 1
        if sibling < len(level):
            path.append(["left" if sibling < place else "right", level[sibling]])
        level, place = _join(level), place // 2
    return path


def climb(leaf: str, path: Sequence[Sequence[str]]) -> str:
    """Return the root at the end of a path."""
    for side, sibling in path:
        (leaf,) = _join([sibling, leaf] if side == "left" else [leaf, sibling])
    return leaf


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="seal"):
    """A seal without its entries, as the file of seals and receipts have it."""

    number: int
    at: str
    entries: int
    root: str
    previous: str
    hash: str

    @property
    def is_whole(self) -> bool:
        """Check that the hash is that of the other fields."""
        return self.hash == _hash_seal(self.number, self.at, self.entries, self.root, self.previous)


def _hash_seal(number: int, at: str, entries: int, root: str, previous: str) -> str:
    return hashlib.sha256(_json([number, at, entries, root, previous])).hexdigest()


def header_of(seal: Seal) -> Header:
    """Return the header of a seal."""
    return Header(
        number=seal.number,
        at=iso(seal.at),
        entries=len(seal.entries),
        root=seal.root,
        previous=seal.previous,
        hash=seal.hash,
    )


def make_seal(entries: Sequence[StoredEntry], last: Header | None, at: datetime) -> Seal:
    """Return the seal of entries, after the last one."""
    sealed = tuple(map(seal_entry, entries))
    number = last.number + 1 if last else 1
    previous = last.hash if last else NO_SEAL
    root = root_of([each.leaf for each in sealed])
    return Seal(
        number=number,
        at=at,
        root=root,
        previous=previous,
        hash=_hash_seal(number, iso(at), len(sealed), root, previous),
        entries=sealed,
    )


class Restore(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="restore"):
    """An accepted restore: the seals after ``number`` no longer apply."""

    number: int
    hash: str
    at: str
    by: str


class SealFile:
    """The seals of a file; ``seals`` has the headers that apply, by number from 1.

    Raises:
        InputError: the file cannot be read, or its seals are no chain.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.seals: list[Header] = []
        #: The length of the whole lines, and of a line that a killed process began.
        self._size = self._torn = 0
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(path, error) from error
        *lines, torn = raw.split(b"\n")
        self._size, self._torn = len(raw) - len(torn), len(torn)
        for number, line in enumerate(lines, 1):
            if not self._take(line):
                damaged = InputError("not the next seal, or changed", line=number)
                damaged.name_file(path)
                raise damaged

    def hash_at(self, number: int) -> str:
        """Return the hash of a seal; `NO_SEAL` for 0, and where the file has none."""
        return self.seals[number - 1].hash if 0 < number <= len(self.seals) else NO_SEAL

    def _take(self, line: bytes) -> bool:
        try:
            item = msgspec.json.decode(line, type=Header | Restore)
        except msgspec.DecodeError:
            return False
        if isinstance(item, Restore):
            is_known = item.number <= len(self.seals) and item.hash == self.hash_at(item.number)
            del self.seals[item.number :]
            return is_known
        if item in self.seals:
            return True  # another process appended it at the same time
        number = len(self.seals)
        is_next = item.number == number + 1 and item.previous == self.hash_at(number)
        self.seals.append(item)
        return is_next and item.is_whole

    def append(self, items: Sequence[Header | Restore]) -> None:
        """Append items, and flush them to the disk.

        Raises:
            InputError: the file cannot be written.
            DiskFull: the disk is full.
        """
        if not items:
            return
        try:
            descriptor = open_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "ab") as file:
                lock(descriptor)
                if self._torn and os.fstat(descriptor).st_size == self._size + self._torn:
                    file.truncate(self._size)
                file.write(b"".join(msgspec.json.encode(item) + b"\n" for item in items))
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(str(self.path)) from error
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from error


class ReceiptCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the run, its seal, the ``file`` of seals compared, and the problem, or ""."""

    id: str
    seal: int = 0
    at: str = ""
    file: str = ""
    problem: str = ""


class ReceiptSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a receipt: hashes of its ID, of its agent's, and of accounts or facts."""

    kind: SubjectKind
    sha256: str
    agent_sha256: str | None = None
    ids_sha256: tuple[str, ...] = ()


class Receipt(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="forgetting"):
    """The parts of a receipt that can be checked; see `edenmem.engine.erasure.reports`."""

    id: str
    forgetting: str
    subject: ReceiptSubject
    removed: dict[str, int]
    mentions: dict[str, int]
    sealed: dict[str, Any] | None = None


def read_receipt(path: str) -> Receipt:
    """Read a receipt of `edenmem.engine.erasure.reports.receipt_of`.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file is no receipt.
    """
    return _read(path)[0]


def _read(path: str) -> tuple[Receipt, dict[str, Any]]:
    """Return the parts that can be checked, and the whole receipt."""
    try:
        raw = Path(path).read_bytes()
        return msgspec.json.decode(raw, type=Receipt), msgspec.json.decode(raw)
    except OSError as error:
        raise unreadable(path, error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a receipt of 'edenmem forget'") from error


def check_receipt(path: str, seals: str = "") -> ReceiptCheck:
    """Check that a receipt is sealed as it is.

    Args:
        path: The receipt.
        seals: The file of seals; without one, the seal itself may be a forgery.

    Raises:
        NotFoundError: a file does not exist.
        InputError: a file is damaged.
    """
    receipt, whole = _read(path)
    kept = SealFile(seals) if seals else None
    try:
        proof = receipt.sealed or {}
        seal = msgspec.convert(proof["seal"], Header)
        problem = _compare(hash_receipt(whole), proof, seal)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return ReceiptCheck(id=receipt.id, problem="not sealed, or incomplete")
    if not problem and kept is not None and kept.hash_at(seal.number) != seal.hash:
        problem = f"seal {seal.number} is not in {kept.path}"
    return ReceiptCheck(
        id=receipt.id,
        seal=seal.number,
        at=seal.at,
        file=str(kept.path) if kept is not None else "",
        problem=problem,
    )


def _compare(receipt: str, proof: dict[str, Any], seal: Header) -> str:
    content, entry, fields = proof["content"], proof["entry"], proof["fields"]
    if fields["content"] != hash_field("content", content, proof["salt"]):
        return "the content of the entry was changed"
    root = climb(hash_entry(entry, fields), proof["path"])
    if root != seal.root or not seal.is_whole:
        return "the entry is not the one that was sealed"
    if content[1]["receipt"] != receipt:
        return "the receipt differs from the sealed entry"
    return ""
