"""Convert documents of memory to models and back, and BSON values to JSON and back.

Reading is lenient, for old documents: IDs may be text, times may lack a zone, lists may be null or
dicts, and fields that only edenmem writes may be missing. Writing is exact, and never replaces a
whole document.

`to_json` loses nothing: types that JSON has are plain JSON, and all others are MongoDB Extended
JSON (``{"$oid": …}``). An object whose own keys begin with ``$`` is wrapped in `DOCUMENT`.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypeVar

from bson import ObjectId, json_util
from bson.binary import Binary, BinaryVectorDtype
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.errors import BSONError
from bson.int64 import Int64
from msgspec import MsgspecError
from msgspec.structs import asdict

from edenmem.errors import EdenmemError, ScopeError
from edenmem.models.host import DOCUMENT, literal_object
from edenmem.models.ids import as_utc
from edenmem.models.memory import (
    POLICY_FIELDS,
    Consolidation,
    Fact,
    FactFields,
    FixedSentence,
    Held,
    Policy,
    Reflection,
    content_hash,
)
from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import (
    EPOCH,
    Filter,
    build_consolidated_key,
    fact_fields,
    object_id,
    object_ids,
    optional_id,
    owner_fields,
)

_OwnedT = TypeVar("_OwnedT", Fact, Reflection, Held, Consolidation, Policy)

#: From narrow to broad. An old document may list several kinds; it belongs to the narrowest whose
#: owner it names.
_NARROWEST = (ScopeKind.SESSION, ScopeKind.USER, ScopeKind.GROUP, ScopeKind.SHARD, ScopeKind.AGENT)

_VERSION_LINE = re.compile(r"\s*VERSION:\s*([+-]?\d+)[^\S\n]*(?:\n|\Z)", re.IGNORECASE)
#: Greater numbers in a VERSION line are ignored.
_MAX_VERSION = 2**31

#: A projection without vectors.
NO_VECTOR = {"embedding": 0, "embedding_next": 0}


_VECTOR_SUBTYPE = 9


def text_id(value: Any) -> str | None:
    """Return an ID as text; None for null and empty values."""
    return None if value is None or value == "" else str(value)


def text_ids(value: Any) -> tuple[str, ...]:
    """Return a list of IDs as text; empty for null and other types."""
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def moment(value: Any) -> datetime | None:
    """Return an aware time; None for null and other types."""
    return as_utc(value) if isinstance(value, datetime) else None


def require_moment(document: Document, field: str) -> datetime:
    """Return a time that edenmem always writes; if it is missing, the creation time."""
    return moment(document.get(field)) or read_creation_time(document)


def read_creation_time(document: Document) -> datetime:
    """Return the document's creation time from its field, else from its ID."""
    found = moment(document.get("createdAt"))
    if found is not None:
        return found
    key = document["_id"]
    return as_utc(key.generation_time) if isinstance(key, ObjectId) else EPOCH


def number(value: Any, default: int = 0) -> int:
    """Return a whole number; ``default`` for null, other types and numbers beyond 64 bits."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if abs(value) < 2**63 else default
    return default


def text(value: Any) -> str:
    """Return a text; empty for null and other types."""
    return value if isinstance(value, str) else ""


def optional_text(value: Any) -> str | None:
    """Return a text; None for null and other types."""
    return value if isinstance(value, str) else None


def kind_of(document: Document, session: str = "session_id") -> ScopeKind:
    """Return the kind of a document's scope; ``session`` names the owner field of sessions."""
    value: Any = document.get("scope")
    if isinstance(value, list):
        owners = {**OWNER_FIELD, ScopeKind.SESSION: session}
        listed = [kind for kind in _NARROWEST if kind in value]
        owned = (kind for kind in listed if text_id(document.get(owners[kind] or "_id")))
        return next(owned, listed[0] if listed else ScopeKind.AGENT)
    try:
        return ScopeKind(value)
    except ValueError:
        raise ValueError("field 'scope' is missing or unknown") from None


def _read_owner(document: Document, session: str = "session_id") -> dict[str, Any]:
    return {
        "id": str(document["_id"]),
        "scope": kind_of(document, session),
        "agent_id": text_id(document.get("agent_id")) or "",
        "user_id": text_id(document.get("user_id")),
        "group_id": text_id(document.get("group_id")),
        "shard": text_id(document.get("shard")),
        "session_id": text_id(document.get("session_id")),
    }


def read_owned(
    read: Callable[[Document], _OwnedT | None], documents: Iterable[Document]
) -> Iterator[_OwnedT]:
    """Yield what ``read`` makes of documents, skipping unreadable ones and those without a scope.

    For reading reference data, where damaged documents do not count.
    """
    for document in documents:
        with suppress(*UNREADABLE):
            found = read(document)
            if found is not None and found.home:
                yield found


#: Errors that reading a damaged document can raise.
UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    EdenmemError,
    BSONError,
    MsgspecError,
)


def readable_fact(document: Document) -> Fact | None:
    """Return the fact of a document; None if it is unreadable or has no scope."""
    return next(read_owned(fact_from, [document]), None)


def _stamp(document: Document, at: datetime) -> Document:
    return {**document, "createdAt": at, "updatedAt": at}


# -- the origin of a version --------------------------------------------------------------------


def mark(change_id: str, version: int, *, at: datetime, action: str, actor: str) -> Document:
    """Return the fields that record which change made a document's version."""
    return {
        "last_change_id": object_id(change_id),
        "last_version": {"version": version, "at": at, "action": action, "actor": actor},
    }


def read_last_version(document: Document, version: int) -> Document:
    """Return ``change_id``, ``at``, ``action`` and ``actor`` of the document's version.

    Empty if another program has written the document since.
    """
    last = document.get("last_version")
    if not isinstance(last, dict) or last.get("version") != version:
        return {}
    return {**last, "change_id": document.get("last_change_id")}


def version_filter(document: Document) -> Filter:
    """Return a filter for a document at its version (a missing version matches too)."""
    return {"_id": document["_id"], "version": document.get("version")}


# -- facts -------------------------------------------------------------------------------------


def fact_from(document: Document, *, with_vector: bool = False) -> Fact:
    """Return the fact of a document."""
    content = text(document.get("content"))
    said_at, recent_at = moment(document.get("said_at")), moment(document.get("recent_at"))
    owned = _read_owner(document, session="group_id")
    if owned["scope"] is ScopeKind.SESSION:
        owned["session_id"], owned["group_id"] = owned["group_id"], None  # see `fact_fields`
    return Fact(
        **owned,
        content=content,
        hash=text(document.get("hash"))
        or content_hash(content, optional_text(document.get("key"))),
        formed_at=_read_formed_at(document),
        said_at=said_at,
        edited_at=recent_at if said_at and recent_at and recent_at > said_at else None,
        source_message_ids=text_ids(document.get("source_message_ids")),
        version=number(document.get("version"), 1) or 1,
        previous_content=optional_text(document.get("previous_content")),
        updated_at=moment(document.get("updated_at")),
        access_count=number(document.get("access_count")),
        last_accessed_at=moment(document.get("last_accessed_at")),
        private=document.get("private") is True,
        formation_id=text_id(document.get("formation_id")),
        related_users=text_ids(document.get("related_users")),
        quote=text(document.get("quote")),
        unconfirmed=text(document.get("unconfirmed")),
        **asdict(read_fields(document)),
        embedding_model=optional_text(document.get("embedding_model")),
        embedding=decode_vector(document.get("embedding")) if with_vector else None,
    )


def fact_document(fact: Fact, *, at: datetime, storage: Literal["array", "bindata"]) -> Document:
    """Return a new document for a fact."""
    document: Document = {
        "_id": object_id(fact.id),
        **fact_fields(fact.home),
        "session_id": optional_id(fact.session_id),
        "content": fact.content,
        "hash": fact.hash,
        "formed_at": fact.formed_at,
        "source_message_ids": object_ids(fact.source_message_ids),
        "access_count": fact.access_count,
        "version": fact.version,
        "previous_content": fact.previous_content,
        "updated_at": fact.updated_at,
        "private": fact.private,
        "formation_id": optional_id(fact.formation_id),
        **_related(fact),
        **({"quote": fact.quote} if fact.quote else {}),
        **_doubt(fact),
        **write_fields(fact.fields),
        # An index orders recent facts by one field; the edit's time is read from it.
        **({"said_at": fact.said_at, "recent_at": fact.recent_at} if fact.said_at else {}),
    }
    if fact.last_accessed_at is not None:
        document["last_accessed_at"] = fact.last_accessed_at
    document.update(vector_fields(fact.embedding, fact.embedding_model, storage))
    return _stamp(document, at)


def read_fields(document: Document) -> FactFields:
    """Return the fields of a fact that a person or another system set; odd values count as none."""
    tags, metadata, value = (document.get(name) for name in ("tags", "metadata", "value"))
    named = metadata.items() if isinstance(metadata, dict) else ()
    listed = tags if isinstance(tags, list) else ()
    return FactFields(
        key=optional_text(document.get("key")),
        tags=tuple(each for each in listed if isinstance(each, str)),
        metadata={name: text(each) for name, each in named},
        expires_at=moment(document.get("expires_at")),
        value=read_json(value) if isinstance(value, dict) else None,
    )


def read_json(value: Any) -> Any:
    """Return a stored JSON value without the types of BSON."""
    match value:
        case dict():
            return {name: read_json(each) for name, each in value.items()}
        case list():
            return [read_json(each) for each in value]
        case None | bool() | float() | str():
            return value
    return int(value) if isinstance(value, int) else str(value)


def write_fields(fields: FactFields) -> Document:
    """Return the fields that have a value; most facts have none."""
    found = {
        "key": fields.key,
        "tags": list(fields.tags) or None,
        "metadata": fields.metadata or None,
        "expires_at": fields.expires_at,
        "value": fields.value,
    }
    return {name: each for name, each in found.items() if each is not None}


def _doubt(memory: Fact | Reflection) -> Document:
    """Return the field with what is in doubt; most memories have none."""
    return {"unconfirmed": memory.unconfirmed} if memory.unconfirmed else {}


def _related(memory: Fact | Reflection) -> Document:
    """Return the field with the users named by v1; most memories have none."""
    return {"related_users": object_ids(memory.related_users)} if memory.related_users else {}


def vector_fields(
    embedding: bytes | None, model: str | None, storage: Literal["array", "bindata"]
) -> Document:
    """Return the fields of a vector and its model; empty without a vector."""
    if embedding is None or not any(embedding):
        return {}
    named = {} if model is None else {"embedding_model": model}
    return {"embedding": encode_vector(embedding, storage), **named}


def encode_vector(vector: bytes, storage: Literal["array", "bindata"]) -> list[float] | Binary:
    """Return the stored form of little-endian float32 bytes."""
    numbers = list(struct.unpack(f"<{len(vector) // 4}f", vector))
    if storage == "bindata":
        return Binary.from_vector(numbers, BinaryVectorDtype.FLOAT32)
    return numbers


def decode_vector(stored: Any) -> bytes | None:
    """Return little-endian float32 bytes; None if the vector is missing or only zeros.

    The platform stored zeros after a failed embedding.
    """
    if isinstance(stored, Binary) and stored.subtype == _VECTOR_SUBTYPE:
        numbers = list(stored.as_vector().data)
    elif isinstance(stored, list) and stored:
        numbers = stored
    else:
        return None
    if not any(numbers) or not all(isinstance(each, int | float) for each in numbers):
        return None
    return array("f", numbers).tobytes()


def _read_formed_at(document: Document) -> datetime:
    return moment(document.get("formed_at")) or read_creation_time(document)


# -- reflections -------------------------------------------------------------------------------


def reflection_from(document: Document) -> Reflection:
    """Return the reflection of a document."""
    return Reflection(
        **_read_owner(document),
        content=text(document.get("content")),
        formed_at=_read_formed_at(document),
        said_at=moment(document.get("said_at")),
        source_message_ids=text_ids(document.get("source_message_ids")),
        version=number(document.get("version"), 1) or 1,
        updated_at=moment(document.get("updated_at")),
        absorbed=document.get("absorbed") is True,
        absorbed_at=moment(document.get("absorbed_at")),
        consolidated_into=text_id(document.get("consolidated_into")),
        private=document.get("private") is True,
        formation_id=text_id(document.get("formation_id")),
        propagated_from=text_ids(document.get("propagated_from")),
        related_users=text_ids(document.get("related_users")),
        place=number(document.get("place")),
        unconfirmed=text(document.get("unconfirmed")),
    )


def reflection_document(reflection: Reflection, *, at: datetime) -> Document:
    """Return a new document for a reflection."""
    return _stamp(
        {
            "_id": object_id(reflection.id),
            **owner_fields(reflection.home),
            "session_id": optional_id(reflection.session_id),
            "content": reflection.content,
            "formed_at": reflection.formed_at,
            "source_message_ids": object_ids(reflection.source_message_ids),
            "version": reflection.version,
            "updated_at": reflection.updated_at,
            "absorbed": reflection.absorbed,
            "absorbed_at": reflection.absorbed_at,
            "consolidated_into": optional_id(reflection.consolidated_into),
            "private": reflection.private,
            "formation_id": optional_id(reflection.formation_id),
            "propagated_from": object_ids(reflection.propagated_from),
            **_related(reflection),
            **({"place": reflection.place} if reflection.place else {}),
            **({"said_at": reflection.said_at} if reflection.said_at else {}),
            **_doubt(reflection),
        },
        at,
    )


# -- held items ----------------------------------------------------------------------------------


def held_from(document: Document) -> Held:
    """Return the held item of a document."""
    return Held(
        **_read_owner(document),
        kind="reflection" if document.get("kind") == "reflection" else "fact",
        content=text(document.get("content")),
        quote=text(document.get("quote")),
        reasons=text(document.get("reasons")),
        source_message_ids=text_ids(document.get("source_message_ids")),
        private=document.get("private") is True,
        formation_id=text_id(document.get("formation_id")),
        held_at=moment(document.get("held_at")) or read_creation_time(document),
        said_at=moment(document.get("said_at")),
    )


def held_document(held: Held, *, at: datetime) -> Document:
    """Return a new document for a held item."""
    return _stamp(
        {
            "_id": object_id(held.id),
            **owner_fields(held.home),
            "session_id": optional_id(held.session_id),
            "kind": held.kind,
            "content": held.content,
            "quote": held.quote,
            "reasons": held.reasons,
            "source_message_ids": object_ids(held.source_message_ids),
            "private": held.private,
            "formation_id": optional_id(held.formation_id),
            "held_at": held.held_at,
            "said_at": held.said_at,
        },
        at,
    )


# -- consolidated texts ------------------------------------------------------------------------


def text_fields(content: str, version: int) -> Document:
    """Return the fields of a text, with the VERSION line that the platform expects.

    A blank text has no such line, which the platform would show to the agent.
    The hash reveals a text that the platform wrote under the same number.
    """
    return {
        "consolidated_content": f"{_version_line(version)}{content}" if content else "",
        "version": version,
        "content_hash": content_hash(content),
    }


def _version_line(version: int) -> str:
    return f"VERSION: {version}\n"


def split_version_line(stored: str) -> tuple[str, int | None]:
    """Split a text into its content and the number in its VERSION line, if plausible."""
    found = _VERSION_LINE.match(stored)
    if found is None:
        return stored, None
    digits = found.group(1)
    number = int(digits) if len(digits) <= len(str(_MAX_VERSION)) else 0
    return stored[found.end() :], number if 1 <= number <= _MAX_VERSION else None


def read_version(document: Document) -> int:
    """Return the version of a consolidated document; 0 without a text.

    The field, the VERSION line and the hash agree unless the platform has written. Then its line
    counts, or at least the next version if it used a number that is taken or implausible.
    """
    stored = text(document.get("consolidated_content"))
    content, line = split_version_line(stored)
    ours = document.get("version")
    if not isinstance(ours, int):
        return line or 1 if content.strip() or line else 0
    is_numbered = not stored or line == ours or stored.startswith(_version_line(ours))
    is_rewritten = document.get("content_hash") not in (None, content_hash(content))
    if (is_numbered and not is_rewritten) or (ours == 0 and not content.strip()):
        return int(ours)  # not an Int64
    return max(line or 0, int(ours) + 1)


def consolidation_from(document: Document) -> Consolidation:
    """Return the consolidated text and buffer of a document."""
    content, _ = split_version_line(text(document.get("consolidated_content")))
    version = read_version(document)
    is_ours = bool(read_last_version(document, version))
    owned = _read_owner(document)
    if owned["scope"] is not ScopeKind.SESSION:
        owned["session_id"] = None  # for groups and shards a part of the key, not a session
    return Consolidation(
        **owned,
        consolidated_content=content,
        version=version,
        word_limit=number(document.get("word_limit")),
        unabsorbed_ids=text_ids(document.get("unabsorbed_ids")),
        absorbed_ids=text_ids(document.get("absorbed_ids")) if is_ours else (),
        last_consolidated_at=moment(document.get("last_consolidated_at")),
        updated_at=moment(document.get("updated_at")) if is_ours else None,
        unpropagated_versions=_read_versions(document.get("unpropagated_versions")),
        fixed=_read_fixed(document.get("fixed")),
    )


def fixed_field(consolidation: Consolidation) -> list[Document]:
    """Return the stored form of the fixed sentences of a text."""
    return [asdict(each) for each in consolidation.fixed]


def _read_fixed(value: Any) -> tuple[FixedSentence, ...]:
    """Return the fixed sentences of a document; empty for other types."""
    found = value if isinstance(value, list) else []
    return tuple(
        FixedSentence(text(each.get("text")), text(each.get("by")), at)
        for each in found
        if isinstance(each, dict) and (at := moment(each.get("at")))
    )


def _read_versions(value: Any) -> tuple[int, ...]:
    """Return a list of versions; empty for other types."""
    return (
        tuple(int(each) for each in value if isinstance(each, int))
        if isinstance(value, list)
        else ()
    )


def scope_of(fields: Document) -> Scope | None:
    """Return the scope of a document; None without a kind and the owner that it needs."""
    try:
        return Scope.from_fields(
            kind_of(fields),
            text_id(fields.get("agent_id")) or "",
            **{name: text_id(fields.get(name)) for name in OWNER_FIELD.values() if name},
        )
    except (ScopeError, ValueError):
        return None


def find_text_scope(document: Document) -> Scope | None:
    """Return the scope whose text and buffer a document holds, or None.

    Compares the whole key: the platform may have another document, of one session of a user, which
    has the same user.
    """
    home = scope_of(document)
    if home is None:
        return None
    key = build_consolidated_key(home)
    del key["scope"]  # may be a list
    return home if all(document.get(name) == value for name, value in key.items()) else None


# -- policies ----------------------------------------------------------------------------------


def policy_from(document: Document) -> Policy | None:
    """Return the policy of a document; None if the document only holds a revision."""
    version = number(document.get("version"))
    if version < 1:
        return None
    fields: Mapping[str, Any] = {name: document.get(name) for name in POLICY_FIELDS}
    owned = _read_owner(document)
    owned["id"] = text_id(document.get("policy_id")) or owned["id"]
    return Policy(
        **{
            **owned,
            **fields,
            "active": fields["active"] is not False,
            "private": fields["private"] is True,
        },
        version=version,
        updated_at=moment(document.get("updated_at")),
    )


_READING = json_util.JSONOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
#: The first key of each type that `to_json` writes.
_TAGS = frozenset(
    {
        "$oid",
        "$date",
        "$numberLong",
        "$numberDouble",
        "$numberDecimal",
        "$binary",
        "$regularExpression",
        "$timestamp",
        "$minKey",
        "$maxKey",
        "$code",
    }
)


def to_json(value: Any) -> Any:
    """Convert a BSON value to JSON."""
    if value is None or isinstance(value, bool) or type(value) is str:  # `Code` is a str too
        return value
    if isinstance(value, Int64):  # small ones would return as 32-bit integers
        return {"$numberLong": str(value)} if -(2**31) <= value < 2**31 else int(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else json_util.default(value)
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return literal_object({str(key): to_json(item) for key, item in value.items()})
    if isinstance(value, datetime | DatetimeMS):
        return json_util.default(value, json_util.RELAXED_JSON_OPTIONS)
    if isinstance(value, Code) and value.scope is not None:
        return {"$code": str(value), "$scope": to_json(value.scope)}
    return json_util.default(value, json_util.CANONICAL_JSON_OPTIONS)


def from_json(value: Any) -> Any:
    """Convert the JSON of `to_json` back to the BSON value."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = value.get(DOCUMENT)
    if len(value) == 1 and isinstance(inner, dict):
        return {key: from_json(item) for key, item in inner.items()}
    plain = {key: from_json(item) for key, item in value.items()}
    if next(iter(value), "") not in _TAGS:
        return plain
    try:
        return json_util.object_hook(dict(plain), _READING)
    except (ValueError, TypeError, ArithmeticError):
        return plain  # not Extended JSON
