"""Notes of what left the engine: the versions of memory that a reply was given.

IDs only: no texts and no queries. Equal lists are stored once, and replies refer to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from datetime import datetime
from functools import lru_cache
from typing import Literal

import msgspec

from edenmem.models.forgetting import block
from edenmem.models.ids import derived_id, new_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope, ScopeKind

ReplyKind = Literal["context", "search", "chat"]
ShownKind = Literal["fact", "reflection", "text"]


class Shown(msgspec.Struct, frozen=True):
    """One version of a fact, reflection or text that was shown.

    A text is identified by its ``scope``. An erased item has neither scope nor ID.
    """

    kind: ShownKind
    id: str
    version: int
    scope: Scope | None

    @property
    def key(self) -> str:
        """Return the key by which the lists with this item are found; "" if it was erased."""
        return text_key(self.scope) if self.kind == "text" and self.scope else self.id


def text_key(scope: Scope) -> str:
    """Return `Shown.key` of the text of a scope."""
    return f"text {scope.key}"


#: The scopes of a list, and its items with the places of their scopes (-1: erased).
_Packed = tuple[list[tuple[ScopeKind, str, str]], list[tuple[ShownKind, str, int, int]]]
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Packed)


def shown_facts(facts: Iterable[Fact]) -> list[Shown]:
    """Return what is noted of facts."""
    return [Shown("fact", fact.id, fact.version, fact.home) for fact in facts]


def pack(items: Iterable[Shown]) -> bytes:
    """Encode a list of items; no bytes for an empty one."""
    places: dict[Scope, int] = {}
    rows = [
        (
            one.kind,
            one.id,
            one.version,
            places.setdefault(one.scope, len(places)) if one.scope else -1,
        )
        for one in items
    ]
    scopes = [(scope.kind, scope.agent_id, scope.owner) for scope in places]
    return _ENCODER.encode((scopes, rows)) if rows else b""


def unpack(packed: bytes) -> tuple[Shown, ...]:
    """Return the items of an encoded list."""
    if not packed:
        return ()
    scopes, rows = _DECODER.decode(packed)
    owners = [*(Scope(*fields) for fields in scopes), None]  # -1 is the last
    return tuple(Shown(kind, id, version, owners[place]) for kind, id, version, place in rows)


def keys_of(items: Iterable[Shown]) -> list[str]:
    """Return the keys by which a list is found: of its items, and of their scopes."""
    kept = [item for item in items if item.scope]
    keys = (key for item in kept for key in (item.key, item.scope.key if item.scope else ""))
    return list(dict.fromkeys(keys))


def without(items: Iterable[Shown], keys: Collection[str]) -> list[Shown]:
    """Erase the items with these keys, or in scopes with these keys; their places remain."""
    return [
        Shown(item.kind, "", 0, None)
        if item.scope and (item.key in keys or item.scope.key in keys)
        else item
        for item in items
    ]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A context, search or chat that left the engine.

    ``session_id`` is None for a search outside of sessions, ``user_id`` the account that was
    answered, if known, and ``message_id`` the message that a chat answers. ``context`` and
    ``found`` are the IDs of the lists of what the context had, and of the facts that a search
    found; "" for none. The context was built at ``built_at``, if not for this reply.
    """

    at: datetime
    kind: ReplyKind
    agent_id: str
    session_id: str | None
    user_id: str | None
    message_id: str | None = None
    built_at: datetime | None = None
    context: str = ""
    found: str = ""
    id: str = msgspec.field(default_factory=new_id)

    @property
    def lists(self) -> tuple[str, ...]:
        """Return the IDs of the lists."""
        return tuple(filter(None, (self.context, self.found)))


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A reply to be noted, and its encoded lists by ID."""

    reply: Reply
    lists: dict[str, bytes]


@lru_cache(maxsize=256)
def _list_id(packed: bytes) -> str:
    return derived_id("told", packed.decode("latin-1"))


def make_note(reply: Reply, context: bytes = b"", found: Sequence[Shown] = ()) -> Note | None:
    """Return the note of a reply, or None if it had no memory.

    Args:
        reply: The reply, without lists.
        context: The encoded list of what the context had.
        found: The facts that a search found.
    """
    lists = [(_list_id(packed) if packed else "", packed) for packed in (context, pack(found))]
    ids = [id for id, _ in lists]
    if not any(ids):
        return None
    reply = msgspec.structs.replace(reply, context=ids[0], found=ids[1])
    return Note(reply=reply, lists={id: packed for id, packed in lists if packed})


def forgotten_in(notes: Iterable[Note], blocks: Set[str]) -> tuple[list[str], set[str]]:
    """Return what forgettings with these blocks have erased, or are erasing.

    Returns:
        The IDs of replies, and the keys of items.
    """
    replies, keys = list[str](), set[str]()
    for note in notes:
        reply = note.reply
        owners = [("session", reply.session_id)]
        if reply.user_id:
            owners.append(("scope", Scope.user(reply.agent_id, reply.user_id).key))
        if any(id and block(kind, id) in blocks for kind, id in owners):
            replies.append(reply.id)
        for item in (item for packed in note.lists.values() for item in unpack(packed)):
            scope = item.scope.key if item.scope else ""
            if block(item.kind, item.id) in blocks:
                keys.add(item.key)
            if block("scope", scope) in blocks:
                keys.add(scope)
    return replies, keys
