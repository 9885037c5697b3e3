"""Reports and documents as plain data for JSON and CSV, independent of the store.

Keys are the names of stored fields (``id`` for ``_id``), times are ISO 8601 in UTC, IDs are hex. A
scope has the fields that documents have for it. Vectors are left out by default.
"""

from __future__ import annotations

import base64
import re
import struct
import sys
from typing import Any, get_type_hints

import msgspec

from edenmem.models.scope import Scope
from edenmem.text import HIDDEN

_SCOPE_FIELDS = frozenset({"kind", "agent_id", "owner"})
_OWNER = {"user": "user_id", "group": "group_id", "shard": "shard", "session": "session_id"}
#: Valid in JSON but unsafe on a terminal: DEL, C1 codes, directional controls, hidden characters.
_UNSAFE = re.compile(f"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069{HIDDEN}]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def to_data(item: Any, *, vectors: bool = False) -> dict[str, Any]:
    """Return a struct as a dict of plain data."""
    plain = _tidy(msgspec.to_builtins(item), vectors)
    assert isinstance(plain, dict)
    return plain


def plan_data(item: Any) -> dict[str, Any]:
    """Return the result of a dry run as a dict with ``dry_run``."""
    return {"dry_run": True, **to_data(item)}


def keys_of(kind: type[msgspec.Struct], *, vectors: bool = False) -> list[str]:
    """Return the keys of `to_data` for a struct type."""
    hints = get_type_hints(kind)
    keys: dict[str, None] = {}
    for field in msgspec.structs.fields(kind):
        if field.name == "scope" and hints["scope"] is Scope:
            keys |= dict.fromkeys(("scope", "agent_id", *_OWNER.values()))
        elif field.name != "embedding" or vectors:
            keys[field.encode_name] = None
    return list(keys)


def _tidy(value: Any, vectors: bool) -> Any:
    if isinstance(value, list | tuple):
        return [_tidy(entry, vectors) for entry in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _SCOPE_FIELDS:
        return _scope_fields(value)
    tidy: dict[str, Any] = {}
    for key, entry in value.items():
        if key == "embedding":
            if vectors:
                tidy[key] = _floats(entry)
        elif key == "scope" and isinstance(entry, dict):
            tidy.update(_scope_fields(entry))
        elif key == "tool_calls":
            tidy[key] = entry  # keys belong to the tool
        else:
            tidy[key] = _tidy(entry, vectors)
    return tidy


def _scope_fields(scope: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"scope": scope["kind"], "agent_id": scope["agent_id"]}
    fields.update(dict.fromkeys(_OWNER.values()))
    if scope["kind"] in _OWNER:
        fields[_OWNER[scope["kind"]]] = scope["owner"]
    return fields


def _floats(encoded: str | None) -> list[float] | None:
    if encoded is None:
        return None
    raw = base64.b64decode(encoded)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def to_json(value: Any, *, indent: int = 0) -> str:
    """Encode a value as JSON that is exact, and safe to print on a terminal of any encoding."""
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a surrogate from the environment or command line
        import json

        return json.dumps(value, indent=indent or None)
    if indent:
        raw = msgspec.json.format(raw, indent=indent)
    is_utf8 = (sys.stdout.encoding or "utf-8").lower() in ("utf-8", "utf8")
    return (_UNSAFE if is_utf8 else _NOT_ASCII).sub(_escape, raw.decode())


def _escape(found: re.Match[str]) -> str:
    """Return the JSON escape of a character, in UTF-16."""
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
