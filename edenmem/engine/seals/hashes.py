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
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.models.ids import as_utc
from edenmem.models.records import Seal, SealedEntry, StoredEntry

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
