"""Find the matches of a typed name or ID prefix."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bson import ObjectId

from edenmem.models.ids import is_id
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import NOT_DELETED, Filter
from edenmem.store.mongo.host.host_codec import session_from
from edenmem.store.protocol.host import Reference, ReferenceKind

_DIGITS = re.compile(r"[0-9a-f]{0,24}\Z")

#: Sorts after every continuation of a prefix.
_LAST = "\U0010ffff"
_PREFIX = re.compile(r"[0-9a-f]{4,24}\Z")

#: Longer names only match exactly: servers limit the length of a regular expression.
_PATTERN_LIMIT = 1000

#: Fields used in labels.
_LABEL_FIELDS = dict.fromkeys(
    ("username", "name", "title", "content", "session_id", "seq", "status", "createdAt"), 1
)


def find(db: Connection, kind: ReferenceKind, text: str, *, limit: int = 20) -> Sequence[Reference]:
    """Find the matches of a text; see `Host.find`."""
    collection, always, names, label = _kinds(db)[kind]
    if not text.strip() or not _storable(text):
        return []
    for condition in _conditions(text, names):
        found = list(
            collection.find(
                {**condition, **always}, _LABEL_FIELDS, sort=_order(condition), limit=limit
            )
        )
        if found:
            return [Reference(id=str(d["_id"]), label=label(d) or str(d["_id"])) for d in found]
    return []


def find_by_prefix(
    db: Connection, kind: ReferenceKind, text: str, *, limit: int
) -> Sequence[Reference]:
    """Find by prefix; names match with case. See `Host.find_by_prefix`."""
    collection, always, names, _ = _kinds(db)[kind]
    if not _storable(text):
        return []
    found: dict[str, Reference] = {}
    for name in names[:1]:  # not by titles, which are sentences
        beginning = {name: {"$gte": text, "$lt": text + _LAST}}
        for document in collection.find(
            {**beginning, **always}, {name: 1}, sort=[(name, 1)], limit=limit
        ):
            key = str(document["_id"])
            found[key] = Reference(id=key, label=codec.text(document.get(name)))
    if _DIGITS.match(text.lower()):
        for document in collection.find(
            {**_with_prefix(text.lower()), **always}, {"_id": 1}, sort=[("_id", -1)], limit=limit
        ):
            key = str(document["_id"])
            found.setdefault(key, Reference(id=key, label=key))
    return list(found.values())[:limit]


def _kinds(
    db: Connection,
) -> dict[str, tuple[Collection, Filter, Sequence[str], Callable[[Document], str]]]:
    return {
        "agent": (db.users, {"type": "agent", **NOT_DELETED}, ["username"], _username),
        "user": (db.users, {"type": "user", **NOT_DELETED}, ["username"], _username),
        "session": (db.sessions, NOT_DELETED, ["name", "title"], _session_label),
        "fact": (db.facts, {}, [], _content),
        "reflection": (db.reflections, {}, [], _content),
        "formation": (db.formations, {}, [], _formation_label),
    }


def _storable(text: str) -> bool:
    """Return whether a name in the database can equal this text."""
    return "\x00" not in text and text.encode("utf-8", "ignore").decode() == text


def _conditions(text: str, names: Sequence[str]) -> list[Filter]:
    """Return filters by priority; the first with results counts."""
    conditions: list[Filter] = []
    if is_id(text):
        conditions.append({"_id": ObjectId(text)})
    conditions.extend({name: text} for name in names)
    # A regular expression matches names in any case; the text is escaped.
    pattern = f"^{re.escape(text)}$"
    if len(pattern) <= _PATTERN_LIMIT:
        conditions.extend({name: {"$regex": pattern, "$options": "i"}} for name in names)
    if _PREFIX.match(text):
        conditions.append(_with_prefix(text))
    return conditions


def _with_prefix(prefix: str) -> Filter:
    low, high = prefix.ljust(24, "0"), prefix.ljust(24, "f")
    return {"_id": {"$gte": ObjectId(low), "$lte": ObjectId(high)}}


def _order(condition: Filter) -> list[tuple[str, int]]:
    return [("_id", 1)] if "_id" in condition else []


def _username(document: Document) -> str:
    return codec.text(document.get("username"))


def _session_label(document: Document) -> str:
    return session_from(document).label


def _content(document: Document) -> str:
    return codec.text(document.get("content"))


def _formation_label(document: Document) -> str:
    return f"{document['session_id']} #{document['seq']} {document['status']}"
