"""Memory of the first version (v1): its documents as they were read, and what becomes of each.

v1 keeps three collections: ``memory_sessions`` (episodes, directives, suggestions and facts, one
document each), ``memory_user`` (one text for an agent and a user, with the ids of the directives
that are not in it yet) and ``memory_agent`` (one shard of what an agent knows, with the ids of its
facts and of the suggestions that are not in its text yet).

A plan is a sequence of `V1Item`. Every document of v1 is among the ``sources`` of at least one of
them, so that all of them can be accounted for; every thing that v2 gets is the ``target`` of
exactly one.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope

MEMORIES = "memory_sessions"
USER_TEXTS = "memory_user"
SHARDS = "memory_agent"

#: The collections whose every document is accounted for.
V1_COLLECTIONS = (USER_TEXTS, SHARDS, MEMORIES)


class Disposition(StrEnum):
    """What becomes of the documents of an item."""

    MIGRATED = "migrated"  # one document, one target
    MERGED = "merged"  # several documents, one target
    LEFT_BEHIND = "left_behind"  # read, understood, and not moved; the reason says why
    BAD = "bad"  # cannot be read, or nobody can tell whose it is


class V1ProblemKind(StrEnum):
    """What is wrong with a document, or with what it says about others."""

    UNREADABLE = "unreadable"  # no document can be made of the bytes
    DUPLICATE_ID = "duplicate_id"  # the collection has another document with this id
    NO_OWNER = "no_owner"  # agent, user or session is missing, or is no id
    UNKNOWN_TYPE = "unknown_type"  # a memory_type that v1 does not have
    EMPTY = "empty"  # there is no text in it
    ID_AS_TEXT = "id_as_text"  # an id that is a string or a dict, not an ObjectId
    TIME_AS_TEXT = "time_as_text"  # a string or a number; without a zone it is taken to be UTC
    TIME_MISSING = "time_missing"  # taken from the document's id, or from its other times
    WRONG_SHAPE = "wrong_shape"  # a field has a value of another type, such as a dict for a list
    INVALID_UTF8 = "invalid_utf8"  # what could not be read is U+FFFD now
    CONTROL_CHARACTERS = "control_characters"  # left out: no store can hold them
    DANGLING = "dangling"  # an id in a list that no document has
    FOREIGN_AGENT = "foreign_agent"  # a listed memory is another agent's; it stays there
    FOREIGN_USER = "foreign_user"  # a listed memory is another user's; it stays there
    WRONG_TYPE = "wrong_type"  # a listed memory is of a kind that does not belong in that list
    LISTED_TWICE = "listed_twice"  # in one list, or in several; moved once to each scope
    REPEATED_SHARD = "repeated_shard"  # a second shard of the name; it is given a number
    REPEATED_PAIR = "repeated_pair"  # a second text for one agent and user
    UNKNOWN_USER = "unknown_user"  # the host has no such user any more
    UNKNOWN_AGENT = "unknown_agent"  # the host has no such agent any more
    OVER_LIMIT = "over_limit"  # longer than v2 allows; moved whole, never cut
    ASSEMBLED_TEXT = "assembled_text"  # the text is only in fully_formed_memory
    NAME_TAKEN = "name_taken"  # an account here has the username; this one is not added
    NOT_AN_ID = "not_an_id"  # an entry of a list of ids that names no document


class V1Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong, and where. ``detail`` is a sentence for a person.

    ``document_id`` is the id as text, or ``@`` and the place in the file if none can be read.
    """

    collection: str
    document_id: str
    agent_id: str | None
    kind: V1ProblemKind
    detail: str


class V1DamageKind(StrEnum):
    """Why the input of a migration is incomplete."""

    ENDS_EARLY = "ends_early"  # a file, or the gzip around it, stops in the middle
    EMPTY = "empty"  # a file of no bytes
    UNREADABLE = "unreadable"  # bytes of which no document can be made
    INVALID_UTF8 = "invalid_utf8"  # documents whose texts are partly lost
    WRONG_TYPE = "wrong_type"  # documents whose owner, text or kind is of another type
    DUPLICATE_ID = "duplicate_id"  # documents whose _id another one has
    NO_DATA = "no_data"  # the metadata of a collection without its documents
    NO_COLLECTION = "no_collection"  # a collection that others refer to


class V1Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the input that is missing or cannot be read.

    Attributes:
        kind: What is wrong.
        where: The file, or the collection of a database.
        collection: The collection it belongs to; empty if unknown.
        documents: Number of documents affected; None if unknown.
        bytes: Number of bytes known to be missing or unreadable; None if unknown.
        places: The first offsets, lines or ids.
        detail: A sentence for a person.
    """

    kind: V1DamageKind
    where: str
    detail: str
    collection: str = ""
    documents: int | None = None
    bytes: int | None = None
    places: tuple[str, ...] = ()


class V1Ref(msgspec.Struct, frozen=True, order=True):
    """One document of v1. ``content_hash`` is of the whole document as it was read, in hex; it is
    the same whatever kind of source the document came from."""

    collection: str
    id: str
    content_hash: str


class V1EarlierText(msgspec.Struct, frozen=True, kw_only=True):
    """A text that another one of the same owner replaces; it belongs into history."""

    content: str
    version: int
    at: datetime
    source: V1Ref


class V1Text(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """The consolidated text of a scope.

    ``version`` is the number of its ``VERSION:`` line, which is not in ``content`` (1 if it had
    none). ``words`` beyond ``word_limit`` are for the caller to condense, if that is wanted.
    ``earlier`` are texts that it replaces, oldest first.
    """

    scope: Scope
    content: str
    version: int
    last_updated_at: datetime
    words: int
    word_limit: int
    earlier: tuple[V1EarlierText, ...] = ()


class V1Reflection(msgspec.Struct, frozen=True, kw_only=True, tag="reflection"):
    """A reflection, pending or absorbed. Pending ones of a scope come in the order of its buffer;
    ``word_limit`` is that of the scope's text."""

    reflection: Reflection
    word_limit: int


class V1Fact(msgspec.Struct, frozen=True, kw_only=True, tag="fact"):
    """A fact without its vector."""

    fact: Fact


class V1Policy(msgspec.Struct, frozen=True, kw_only=True, tag="policy"):
    """The settings of a scope, ``version`` 0: none is stored yet. A shard exists by its policy."""

    policy: Policy


class V1Toggles(msgspec.Struct, frozen=True, kw_only=True, tag="toggles"):
    """Whether the agent's own memory is on."""

    agent_id: str
    agent_memory_enabled: bool


V1Target = V1Text | V1Reflection | V1Fact | V1Policy | V1Toggles

#: The kinds of items, in the order in which one agent's come.
V1ItemKind = Literal["toggles", "policy", "text", "fact", "reflection", "episode", "leftover"]


class V1Item(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of some documents of v1.

    Attributes:
        key: Unique, and in the order of plain string comparison the same as that of the items; the
            same in every process as long as the source and the options are the same.
        kind: Which step of an agent's migration it belongs to.
        agent_id: Whose it is; empty if nobody can tell.
        shard: The name of the shard that it comes from, if it comes from exactly one.
        user_id: The canonical id of the user whose it is.
        sources: The documents that it accounts for; never empty.
        disposition: What becomes of them.
        reason: Why, in words; of one wording for all items of a sort, so that they can be counted.
        target: What v2 gets; None if nothing.
        problems: What was wrong with the sources.
        extra: Fields that v2 has no place for: JSON, ``{"collection/id": {field: value}}``, values
            as relaxed Extended JSON; empty if there are none. For history.
    """

    key: str
    kind: V1ItemKind
    agent_id: str
    sources: tuple[V1Ref, ...]
    disposition: Disposition
    reason: str
    shard: str | None = None
    user_id: str | None = None
    target: V1Target | None = None
    problems: tuple[V1Problem, ...] = ()
    extra: str = ""


class V1Person(msgspec.Struct, frozen=True, kw_only=True):
    """An agent or user, as far as v1's source tells: ``known`` is None if it has no ``users3``,
    else whether the id is in it and not deleted. ``persona`` and ``user_memory_enabled`` are an
    agent's; ``eden_user_id`` links an account to the canonical id of its user."""

    id: str
    username: str | None = None
    name: str | None = None
    owner: str | None = None
    known: bool | None = None
    persona: str | None = None
    eden_user_id: str | None = None
    user_memory_enabled: bool = False


class V1Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of v1.

    Attributes:
        shards: "merge": the active shards of an agent become the agent's own memory, a headed
            section of the text for each; paused ones become paused shard scopes. "keep": each
            becomes a shard scope.
        provenance: Make absorbed reflections of directives and suggestions that are in a text
            already; otherwise they are left behind.
        episodes: "leave" them behind, or "keep" them as reflections of their sessions.
        agents: Only these agents; empty: all. A plan also takes names, and then has their ids.
        active_since: Leave behind the memory of every scope that nothing was written to since.
        fact_words: Longer facts are noted as problems, and moved whole.
        reflection_words: The same for directives, suggestions and episodes.
        user_words: The limit of a user's text; likewise the other three.
        database: Which of several databases to read; empty: the only one.
        files: Patterns of file names, to choose among several files of one collection.
    """

    shards: Literal["merge", "keep"] = "merge"
    provenance: bool = False
    episodes: Literal["leave", "keep"] = "leave"
    agents: tuple[str, ...] = ()
    active_since: datetime | None = None
    fact_words: int = 30
    reflection_words: int = 35
    user_words: int = 300
    agent_words: int = 1200
    shard_words: int = 1000
    session_words: int = 200
    database: str = ""
    files: tuple[str, ...] = ()
