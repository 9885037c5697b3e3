"""A forgetting: its subject, the traces of the subject, and the blocks against later writes.

During a forgetting, and for changes decided before its end, the store rejects changes that would
restore forgotten memory (see `keys_of_change`). Only hashes and counts are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact, Held
from edenmem.models.scope import Scope

SubjectKind = Literal["user", "session", "group", "agent", "fact"]

#: Replacement of removed texts in the history.
FORGOTTEN = "[forgotten]"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The user, session, group, agent or facts to forget.

    ``owner`` is the user's canonical ID, the ID of the session or group, or empty otherwise.
    ``agent_id`` limits a user to one agent, and is the agent of facts that have the same one.
    ``accounts`` are all accounts of a user. ``names`` are IDs, usernames, and display names in
    conversations; for facts, their texts in all versions (also in ``texts``) and given words.
    ``facts`` are the IDs of facts, and ``references`` the prefixes by which a command named them.
    ``known_id`` is the ID of an earlier forgetting, after which nothing else of the subject is
    known.
    """

    kind: SubjectKind
    owner: str = ""
    agent_id: str | None = None
    accounts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    known_id: str = ""

    @property
    def id(self) -> str:
        """Return the ID of the forgetting, which does not reveal the subject."""
        if self.kind == "fact":
            return self.known_id or derived_id("forget", self.kind, *sorted(self.facts))
        return self.known_id or derived_id("forget", self.kind, self.owner, self.agent_id or "")

    @property
    def called(self) -> tuple[str, ...]:
        """Return what a command may call the subject. Texts of facts are not among them."""
        return (*self.facts, *self.references) if self.kind == "fact" else self.names


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a subject's traces.

    Attributes:
        scopes: Scopes to remove as a whole.
        sources: Sessions whose facts and reflections are removed from all scopes.
        own: Sessions whose messages all count as formed, so that no later run forms them, and
            whose formation records are emptied.
        shared: Sessions to treat like ``own``, but only for messages of ``accounts`` and for these
            ``messages``.
        accounts: The accounts of a user.
        facts: Facts to remove, in any scope.
        messages: The source messages of ``facts``.
        held: Items that wait for review to remove, in any scope.
        agent_id: Only memory of this agent (None: any).
        agents: Agents whose cached contexts may hold traces.
    """

    scopes: tuple[Scope, ...] = ()
    sources: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    agent_id: str | None = None
    agents: tuple[str, ...] = ()


def whole_accounts(traces: Traces) -> tuple[str, ...]:
    """Return the accounts that all agents forget."""
    return traces.accounts if traces.agent_id is None else ()


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """The stored record of a forgetting.

    ``blocks`` are hashes (see `block`) of forgotten scopes, facts, sources and names. ``counts``
    are the traces at the start, and after the end the removals.
    """

    id: str
    kind: SubjectKind
    begun_at: datetime
    closed_at: datetime | None = None
    blocks: tuple[str, ...] = ()
    counts: dict[str, int] = msgspec.field(default_factory=dict)


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored text of memory, or of records about memory.

    ``kind``: "fact", "reflection", "consolidation", "policy" (the document), "previous" (the
    earlier text of a fact), "doubt" (quote and doubt of a fact or reflection),
    "history", "audit", "formation" (decisions and errors), "context" (cached with a session), or
    "unreadable" (all of a document). ``target_type`` and ``target_id`` identify the target of
    the text. ``session_id`` and ``source_message_ids`` are the source of a fact or reflection,
    ``related_users`` its users in v1.
    """

    kind: str
    id: str
    target_type: str
    target_id: str
    text: str
    scope: Scope | None = None
    session_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """The result of purging deleted data from the store's files.

    ``left`` describes unfinished work and its remedy, ``beyond`` data that edenmem cannot reach.
    """

    done: bool = True
    left: str = ""
    beyond: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def block(kind: str, key: str) -> str:
    """Hash a "scope", "fact", parent "reflection", source "session" or "message", or a name.

    "removed": a message that was removed with its fact.
    """
    import hashlib  # loads OpenSSL, which most commands do without

    return hashlib.sha256(f"{kind}:{key}".encode()).hexdigest()[:32]


def keys_of_change(change: Any) -> set[str]:
    """Return the blocks that reject a change: of its scopes, facts, source sessions and parents."""
    keys: set[str] = set()
    scope = getattr(change, "scope", None)
    if isinstance(scope, Scope):
        keys.add(block("scope", scope.key))
    named = getattr(change, "fact_id", None)
    if getattr(change, "target_type", None) == "fact":
        named = getattr(change, "target_id", None)
    if isinstance(named, str):
        keys.add(block("fact", named))
    for name in ("fact", "or_add", "reflection", "held", "policy"):
        added = getattr(change, name, None)
        if added is None:
            continue
        if isinstance(added, Fact):
            keys.add(block("fact", added.id))
        if isinstance(added, Held):
            keys.add(block("held", added.id))
        keys.add(block("scope", added.home.key))
        if added.session_id:
            keys.add(block("session", added.session_id))
        keys.update(block("reflection", id) for id in getattr(added, "propagated_from", ()))
    return keys


#: Fields of facts, reflections and held items that quote a person, or say what is in doubt.
_BESIDE = ("quote", "unconfirmed", "reasons")
#: Fields of an audit entry's documents with text of people or models.
_WRITTEN = (
    "content",
    "previous_content",
    "consolidated_content",
    "memory_instructions",
    "consolidation_instructions",
    "persona",
)


def list_texts(*documents: dict[str, Any] | None) -> list[str]:
    """Return the texts in an audit entry's documents."""
    found = (document.get(name) for document in documents if document for name in _WRITTEN)
    return [text for text in found if isinstance(text, str) and text]


def list_doubts(*documents: dict[str, Any] | None) -> list[str]:
    """Return the quotes and doubts in documents of facts, reflections and held items."""
    found = (document.get(name) for document in documents if document for name in _BESIDE)
    return [text for text in found if isinstance(text, str) and text]


def list_field_texts(*documents: dict[str, Any] | None) -> list[str]:
    """Return the texts in the fields of facts in documents, which may name a person."""
    names = ("key", "tags", "metadata", "value")
    found = (document.get(name) for document in documents if document for name in names)
    return [text for each in found for text in _texts_in(each)]


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for pair in value.items() for each in pair for text in _texts_in(each))
        case list() | tuple():
            yield from (text for each in value for text in _texts_in(each))


class Origin(msgspec.Struct, frozen=True):
    """The source of memory in an audit entry's documents."""

    session_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()


def origin_in(*documents: dict[str, Any] | None) -> Origin:
    """Return the session, source messages and users in an audit entry's documents."""
    session_id, sources, users = None, dict[str, None](), dict[str, None]()
    for document in documents:
        if document:
            session_id = session_id or document.get("session_id")
            sources |= dict.fromkeys(map(str, document.get("source_message_ids") or ()))
            users |= dict.fromkeys(map(str, document.get("related_users") or ()))
    return Origin(None if session_id is None else str(session_id), tuple(sources), tuple(users))
