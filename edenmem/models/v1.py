"""Migration plans for memory of the first version (v1).

v1 has three collections: ``memory_sessions`` (episodes, directives, suggestions and facts, one
document each), ``memory_user`` (a text per agent and user, with the IDs of pending directives) and
``memory_agent`` (a shard of an agent, with the IDs of its facts and pending suggestions).

A plan is a sequence of `V1Item`. Every v1 document is among the ``sources`` of at least one item,
so that no document is lost; every object in v2 is the target of exactly one item. The ID of a
target is derived from its kind, its v1 document and its scope, that of a fact from its scope and
its text.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind

MEMORIES = "memory_sessions"
USER_TEXTS = "memory_user"
SHARDS = "memory_agent"

#: Collections whose documents must all occur in a plan.
V1_COLLECTIONS = (USER_TEXTS, SHARDS, MEMORIES)


class Outcome(StrEnum):
    """The outcome of an item."""

    MIGRATED = "migrated"  # one document, one target
    MERGED = "merged"  # several documents, one target
    ALREADY = "already"  # unchanged in v1 since an earlier run, or identical in v2
    KEPT = "kept"  # v2 has another version, which was kept
    LEFT_BEHIND = "left_behind"  # readable, but not migrated; see the reason
    BAD = "bad"  # unreadable, or without an owner
    FAILED = "failed"


class V1ProblemKind(StrEnum):
    """Problems of a document or its references."""

    UNREADABLE = "unreadable"  # the bytes are not a document
    DUPLICATE_ID = "duplicate_id"  # another document of the collection has the same ID
    NO_OWNER = "no_owner"  # agent, user or session is missing or invalid
    UNKNOWN_TYPE = "unknown_type"  # memory_type is not a type of v1
    EMPTY = "empty"  # no text
    ID_AS_TEXT = "id_as_text"  # an ID is a string or dict instead of an ObjectId
    TIME_AS_TEXT = "time_as_text"  # a string or number; UTC if without a zone
    TIME_MISSING = "time_missing"  # replaced by the time of the ID, or by another time
    WRONG_SHAPE = "wrong_shape"  # a field has the wrong type, such as a dict for a list
    INVALID_UTF8 = "invalid_utf8"  # invalid bytes are replaced by U+FFFD
    CONTROL_CHARACTERS = "control_characters"  # removed: no store can hold them
    DANGLING = "dangling"  # a listed ID without a document
    FOREIGN_AGENT = "foreign_agent"  # a listed memory belongs to another agent and stays there
    FOREIGN_USER = "foreign_user"  # a listed memory belongs to another user and stays there
    WRONG_TYPE = "wrong_type"  # a listed memory has the wrong type for the list
    REPEATED_SHARD = "repeated_shard"  # a second shard of the same name; gets a number
    REPEATED_PAIR = "repeated_pair"  # a second text for one agent and user
    UNKNOWN_USER = "unknown_user"  # the user no longer exists
    ASSEMBLED_TEXT = "assembled_text"  # the text is only in fully_formed_memory
    NOT_AN_ID = "not_an_id"  # a list of IDs has an invalid entry
    NO_PLACE = "no_place"  # unknown fields, and no memory in v2 whose log entry could keep them


class V1Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a document. ``detail`` is a sentence for the operator.

    ``document_id`` is the ID as text, or ``@`` and the place in the file if unreadable.
    """

    collection: str
    document_id: str
    agent_id: str | None
    kind: V1ProblemKind
    detail: str


class V1DamageKind(StrEnum):
    """Damage of the input of a migration."""

    ENDS_EARLY = "ends_early"  # a truncated file or gzip stream
    EMPTY = "empty"  # an empty file
    UNREADABLE = "unreadable"  # bytes that are not a document
    INVALID_UTF8 = "invalid_utf8"  # documents with partly lost texts
    WRONG_TYPE = "wrong_type"  # documents with an owner, text or kind of the wrong type
    DUPLICATE_ID = "duplicate_id"  # documents with the _id of another document
    NO_DATA = "no_data"  # metadata of a collection without its documents
    NO_COLLECTION = "no_collection"  # a referenced collection is missing


class V1Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A missing or unreadable part of the input.

    Attributes:
        kind: The kind of damage.
        where: File, or collection of a database.
        collection: The affected collection; empty if unknown.
        documents: Number of affected documents; None if unknown.
        bytes: Number of missing or unreadable bytes; None if unknown.
        places: The first offsets, lines or IDs.
        detail: A sentence for the operator.
    """

    kind: V1DamageKind
    where: str
    detail: str
    collection: str = ""
    documents: int | None = None
    bytes: int | None = None
    places: tuple[str, ...] = ()


class V1Ref(msgspec.Struct, frozen=True, order=True):
    """A document of v1. The ID of a repeated one has its number among its duplicates."""

    collection: str
    id: str


class V1EarlierText(msgspec.Struct, frozen=True, kw_only=True):
    """A text replaced by a later text of the same owner, for the history."""

    content: str
    version: int
    at: datetime
    source: V1Ref


Memory = Fact | Reflection | Consolidation | Policy

#: Kinds of items, in their order for one agent.
V1ItemKind = Literal["toggles", "policy", "text", "fact", "reflection", "episode", "leftover"]


class V1Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The migration of some v1 documents to at most one target.

    Attributes:
        kind: The step of the agent's migration.
        agent_id: The agent; empty if unknown.
        sources: The source documents; never empty.
        outcome: The outcome in an empty store.
        reason: Reason of the outcome, with the same wording for items of a kind, for counts.
        fact: The fact that v2 must hold, without its vector.
        reflection: The reflection; pending ones of a scope are in buffer order.
        text: The text, without an ID; ``version`` is the number in its ``VERSION:`` line.
        policy: The settings of a scope, with ``version`` 0. The policy of a shard creates it.
        switch: Whether the agent's memory is on.
        earlier: Texts that ``text`` replaced in v1, oldest first.
        problems: Problems of the sources.
        extra: Fields without a place in v2, for the history: JSON,
            ``{"collection/id": {field: value}}``, with values in relaxed Extended JSON; or empty.
    """

    kind: V1ItemKind
    agent_id: str
    sources: tuple[V1Ref, ...]
    outcome: Outcome
    reason: str
    fact: Fact | None = None
    reflection: Reflection | None = None
    text: Consolidation | None = None
    policy: Policy | None = None
    switch: bool | None = None
    earlier: tuple[V1EarlierText, ...] = ()
    problems: tuple[V1Problem, ...] = ()
    extra: str = ""

    @property
    def memory(self) -> Memory | None:
        """Return the target, unless it is a switch."""
        return self.fact or self.reflection or self.text or self.policy

    @property
    def scope(self) -> Scope | None:
        """Return the scope of the target; None for a switch and without a target."""
        memory = self.memory
        return None if memory is None else memory.home


class V1Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a migration from v1.

    Attributes:
        shards: "merge": active shards become the agent's memory, with a section of the text per
            shard; paused shards become paused shard scopes. "keep": each shard becomes a scope.
        provenance: Migrate consolidated directives and suggestions as absorbed reflections;
            otherwise they are left behind.
        episodes: "leave" episodes behind, or "keep" them as reflections of their sessions.
        agents: Only these agents (empty: all), as IDs or names; a plan has IDs.
        user_words: Word limit of a user's text in v2; the other three limits likewise.
    """

    shards: Literal["merge", "keep"] = "merge"
    provenance: bool = False
    episodes: Literal["leave", "keep"] = "leave"
    agents: tuple[str, ...] = ()
    user_words: int = 300
    agent_words: int = 1200
    shard_words: int = 1000
    session_words: int = 200

    def word_limit(self, scope: Scope) -> int:
        """Return the word limit of a scope's text."""
        limits = {
            ScopeKind.USER: self.user_words,
            ScopeKind.SHARD: self.shard_words,
            ScopeKind.SESSION: self.session_words,
        }
        return limits.get(scope.kind, self.agent_words)


# -- documents -------------------------------------------------------------------------------------


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
    document: V1Document | None
    notes: tuple[Note, ...] = ()
    damage: V1DamageKind | None = None


class V1StagedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document in the stage, with its ``number`` there."""

    number: int
    collection: str
    id: str
    document: V1Document | None
    notes: tuple[Note, ...] = ()
