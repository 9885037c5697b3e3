"""The documents of v1 as they were read: fields of the right types, whatever was stored.

Ids are text (24 lower-case hex digits where they are ids at all), times aware UTC, lists tuples.
What is missing is empty or None. Texts are as they were stored, except for bytes that are no UTF-8
and v1's word count lines.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from edenmem.models.v1 import V1DamageKind, V1ProblemKind


class _V1Document(msgspec.Struct, frozen=True, kw_only=True):
    """What all have. ``extra``: fields that v1 is not known for, as JSON; empty if there are none.

    ``created_at`` is taken from the id or from other times if it is not stored.
    """

    id: str
    agent_id: str
    created_at: datetime
    updated_at: datetime | None = None
    extra: str = ""


class V1Memory(_V1Document, frozen=True, kw_only=True, tag="memory"):
    """One of ``memory_sessions``: an episode, directive, suggestion or fact."""

    memory_type: str
    content: str
    session_id: str = ""
    message_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    shard_id: str = ""


class V1UserText(_V1Document, frozen=True, kw_only=True, tag="user_text"):
    """One of ``memory_user``. ``user_id`` is canonical as far as the source can tell.

    ``assembled`` is ``fully_formed_memory``, if the document has no other text.
    """

    user_id: str
    content: str
    assembled: str = ""
    pending: tuple[str, ...] = ()
    last_updated_at: datetime | None = None


class V1Shard(_V1Document, frozen=True, kw_only=True, tag="shard"):
    """One of ``memory_agent``; ``assembled`` as in `V1UserText`."""

    name: str
    instructions: str
    active: bool
    content: str
    assembled: str = ""
    pending: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    last_updated_at: datetime | None = None
    max_facts: int | None = None
    max_pending: int | None = None


V1Document = V1Memory | V1UserText | V1Shard


class V1Account(msgspec.Struct, frozen=True, kw_only=True):
    """A user or an agent of the host, as far as it is needed; ``memory_id`` is canonical.

    ``persona`` and ``user_memory_enabled`` are an agent's.
    """

    id: str
    memory_id: str
    is_agent: bool
    username: str = ""
    name: str = ""
    owner: str = ""
    deleted: bool = False
    persona: str = ""
    user_memory_enabled: bool = False


#: What was wrong with a document by itself: the kind, and a sentence for a person.
Note = tuple[V1ProblemKind, str]


class V1Read(msgspec.Struct, frozen=True, kw_only=True):
    """One document as it came out of a source.

    ``document`` is None if no document could be made of it; ``notes`` then say why, and ``raw`` is
    (the beginning of) what was found there. ``id`` is ``@`` and a place if it has no id. ``damage``
    says whether the input lacks something because of this document.
    """

    collection: str
    id: str
    document: V1Document | V1Account | None
    notes: tuple[Note, ...] = ()
    raw: bytes = b""
    damage: V1DamageKind | None = None


class V1StagedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document in the stage. ``number`` is its own there; ``hash`` that of `V1Ref`."""

    number: int
    collection: str
    id: str
    hash: str
    document: V1Document | None
    notes: tuple[Note, ...] = ()
