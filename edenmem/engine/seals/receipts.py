"""Check a receipt of an erasure without the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from edenmem.engine.seals.file import SealFile
from edenmem.engine.seals.hashes import Header, climb, hash_entry, hash_field, hash_receipt
from edenmem.errors import InputError, unreadable
from edenmem.models.forgetting import SubjectKind


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
