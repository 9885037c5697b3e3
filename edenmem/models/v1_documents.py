"""Documents of v1, with fields converted to the right types.

IDs are text (24 lower-case hex digits if valid), times are in UTC, lists are tuples. Missing values
are empty or None. Texts are unchanged, except for invalid UTF-8 and v1's word count lines.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from edenmem.models.v1 import V1DamageKind, V1ProblemKind


class _V1Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of documents. ``extra`` has unknown fields as JSON, or is empty.

    A missing ``created_at`` is derived from the ID or other times.
    """

    id: str
    agent_id: str
    created_at: datetime
    updated_at: datetime | None = None
    extra: str = ""


class V1Memory(_V1Document, frozen=True, kw_only=True, tag="memory"):
    """A document of ``memory_sessions``: an episode, directive, suggestion or fact."""

    memory_type: str
    content: str
    session_id: str = ""
    message_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    shard_id: str = ""


class V1UserText(_V1Document, frozen=True, kw_only=True, tag="user_text"):
    """A document of ``memory_user``. ``user_id`` is canonical if the source has the link.

    ``assembled`` is ``fully_formed_memory``, if the document has no other text.
    """

    user_id: str
    content: str
    assembled: str = ""
    pending: tuple[str, ...] = ()
    last_updated_at: datetime | None = None


class V1Shard(_V1Document, frozen=True, kw_only=True, tag="shard"):
    """A document of ``memory_agent``; ``assembled`` as in `V1UserText`."""

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
    """A user or agent of the host.

    ``known`` is None if the source has no accounts, else whether the ID exists there and is not
    deleted. ``eden_user_id`` links an account to the canonical ID of its user. ``persona`` and
    ``user_memory_enabled`` are for agents.
    """

    id: str
    is_agent: bool = False
    known: bool | None = None
    username: str = ""
    name: str = ""
    owner: str = ""
    eden_user_id: str = ""
    persona: str = ""
    user_memory_enabled: bool = False

    @property
    def memory_id(self) -> str:
        """Return the canonical ID, under which v1 keeps memory."""
        return self.eden_user_id or self.id


#: Kind and description of a problem within a document.
Note = tuple[V1ProblemKind, str]


class V1Read(msgspec.Struct, frozen=True, kw_only=True):
    """One document read from a source.

    ``document`` is None if unreadable; ``notes`` then have the reasons. ``id`` is ``@`` and a place
    for a document without an ID. ``damage`` is set if the document makes the input incomplete.
    """

    collection: str
    id: str
    document: V1Document | V1Account | None
    notes: tuple[Note, ...] = ()
    damage: V1DamageKind | None = None


class V1StagedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document in the stage, with its ``number`` there."""

    number: int
    collection: str
    id: str
    document: V1Document | None
    notes: tuple[Note, ...] = ()
