"""One record as one line of JSON.

Keys are the names of the stored fields (``id`` for ``_id``), times ISO 8601 in UTC with whole
milliseconds, ids hex; a vector is the base64 of its little-endian float32 numbers. The first line
of a file says what it is, a line after every thousand records and the last one what came before::

    {"type": "header", "format": 1, …}
    {"type": "agent", "id": …, …}
    …
    {"type": "checkpoint", "records": 1000, "sha256": …}
    …
    {"type": "trailer", "records": 1234, "counts": {"agent": 2, …}, "sha256": …}

A digest is of all lines before its own, the header left out, so that two files with the same memory
differ in their first line alone.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from edenmem.models.backup import Record, RecordKind
from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind

FORMAT = 1
HEADER, CHECKPOINT, TRAILER = "header", "checkpoint", "trailer"
#: Records between two checkpoints.
STEP = 1000
#: Kinds whose scope is one value of theirs, spelled out in a line as in every other.
_WITH_SCOPE = (RecordKind.AUDIT, RecordKind.HISTORY)
OWNERS = ("user_id", "group_id", "shard", "session_id")


def encode(kind: RecordKind, record: Record) -> bytes:
    """A record as a line, without the line's end."""
    if kind in _WITH_SCOPE:
        fields: dict[str, Any] = msgspec.to_builtins(record)
        scope = fields.pop("scope")
        return msgspec.json.encode({"type": kind.value, **spelled(scope), **fields})
    return b'{"type":"%s",' % kind.value.encode() + msgspec.json.encode(record)[1:]


def encode_mark(type: str, **fields: Any) -> bytes:
    """A line that is no record."""
    return msgspec.json.encode({"type": type, **fields})


def spelled(scope: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of a scope as documents have them; none for none."""
    if scope is None:
        return {"scope": None}
    fields = {"scope": scope["kind"], "agent_id": scope["agent_id"], **dict.fromkeys(OWNERS)}
    owner = OWNER_FIELD[ScopeKind(scope["kind"])]
    return {**fields, owner: scope["owner"]} if owner else fields


def gathered(kind: RecordKind, fields: dict[str, Any]) -> dict[str, Any]:
    """`spelled` taken back, for the kinds that have their scope as one value.

    Raises:
        ScopeError: the id that the kind of scope needs is missing.
        ValueError: there is no such kind.
    """
    if kind not in _WITH_SCOPE:
        return fields
    rest = dict(fields)
    owners = {name: rest.pop(name, None) for name in OWNERS}
    if rest.get("scope") is None:
        return {**rest, "scope": None}
    scope = Scope.from_fields(
        ScopeKind(rest["scope"]), rest["agent_id"], **{k: v or None for k, v in owners.items()}
    )
    if kind is RecordKind.HISTORY:
        rest.pop("agent_id")
    return {**rest, "scope": msgspec.to_builtins(scope)}


class Digest:
    """What has been read or written so far."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.records = 0
        self.counts: dict[str, int] = {}

    def add(self, line: bytes) -> None:
        """One line, without its end."""
        self._sha256.update(line)
        self._sha256.update(b"\n")

    def count(self, kind: RecordKind) -> None:
        """One record more."""
        self.records += 1
        self.counts[kind.value] = self.counts.get(kind.value, 0) + 1

    @property
    def sha256(self) -> str:
        """The digest of all lines so far, in hex."""
        return self._sha256.hexdigest()
