"""A forgetting: who or what is to be forgotten, where its traces are, and what keeps it forgotten.

While one is open, and for whatever was decided before it was closed, the store refuses changes that
would bring something back (see `keys_of_change`). All that is kept of one is hashes and counts.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope

SubjectKind = Literal["user", "session", "group", "agent"]

#: What stands in history in place of a text that was removed because it named somebody.
FORGOTTEN = "[forgotten]"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Who or what is to be forgotten.

    ``owner`` is the user's canonical id, the session's or group's id, or empty for a whole agent.
    ``agent_id`` narrows a user to one agent. ``accounts`` are all accounts of a user, ``names``
    what the subject is called in texts: ids, usernames, names shown in conversations. ``known_id``
    is the id of an earlier forgetting, where nothing else is known of the subject any more.
    """

    kind: SubjectKind
    owner: str = ""
    agent_id: str | None = None
    accounts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    known_id: str = ""

    @property
    def id(self) -> str:
        """The id of its forgetting, of which neither name nor id of the subject can be told."""
        return self.known_id or derived_id("forget", self.kind, self.owner, self.agent_id or "")


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """Where the traces of a subject are.

    Attributes:
        scopes: Their memory goes as a whole.
        sources: Sessions; facts and reflections that come from them go out of every scope.
        own: Sessions in which everything that was said counts as done, so that no later run forms
            it; what their formations hold goes.
        shared: Sessions in which the same is true of what ``accounts`` said.
        accounts: The accounts of a user.
        agent_id: Only what this agent knows; None: any.
        agents: Those whose cached contexts may hold something of it.
    """

    scopes: tuple[Scope, ...] = ()
    sources: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    agent_id: str | None = None
    agents: tuple[str, ...] = ()


def whole_accounts(traces: Traces) -> tuple[str, ...]:
    """The accounts of which nothing is to be told any more: of somebody whom all agents forget."""
    return traces.accounts if traces.agent_id is None else ()


class Forgetting(msgspec.Struct, frozen=True, kw_only=True):
    """A forgetting as the store keeps it: ``blocks`` are hashes (see `block`) of what nothing may
    bring back, and of what the subject was called by whoever asked. ``counts`` is what there was
    when it began, and once it is closed what was removed."""

    id: str
    kind: SubjectKind
    begun_at: datetime
    closed_at: datetime | None = None
    blocks: tuple[str, ...] = ()
    counts: dict[str, int] = msgspec.field(default_factory=dict)


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A text that is stored somewhere, of memory or of what is kept about it.

    ``place`` says where: "fact", "reflection", "consolidation", "policy" (the thing itself),
    "previous" (the text that a fact had before), "history", "audit", "formation" (decisions and
    errors), "context" (cached with a session). ``target_type`` and ``target_id`` name what it is a
    text of; ``scope`` is None where there is none. ``session_id`` and ``source_message_ids`` say
    where a fact or reflection comes from, ``related_users`` whom v1 named with it.
    """

    place: str
    id: str
    target_type: str
    target_id: str
    text: str
    scope: Scope | None = None
    session_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what was deleted is gone from the store's files. ``left`` says what could not be
    done and how to finish it; ``beyond`` what no command of ours can reach."""

    done: bool = True
    left: str = ""
    beyond: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def block(kind: str, key: str) -> str:
    """The hash of a "scope", of the "session" that something comes from, of a "reflection" that
    another was derived from, or of what a subject was "called"."""
    import hashlib  # loads OpenSSL, which most commands do without

    return hashlib.sha256(f"{kind}:{key}".encode()).hexdigest()[:32]


def keys_of_change(change: Any) -> set[str]:
    """The keys by which a change may bring back what was forgotten: those of every scope, session
    and parent that it or what it adds names."""
    keys: set[str] = set()
    scope = getattr(change, "scope", None)
    if isinstance(scope, Scope):
        keys.add(block("scope", scope.key))
    for name in ("fact", "or_add", "reflection", "policy"):
        added = getattr(change, name, None)
        if added is None:
            continue
        keys.add(block("scope", added.home.key))
        if added.session_id:
            keys.add(block("session", added.session_id))
        keys.update(block("reflection", id) for id in getattr(added, "propagated_from", ()))
    return keys


#: The fields of an audit entry's documents that hold what people or models wrote.
_WRITTEN = (
    "content",
    "previous_content",
    "consolidated_content",
    "memory_instructions",
    "consolidation_instructions",
    "persona",
)


def list_texts(*documents: dict[str, Any] | None) -> list[str]:
    """The texts in an audit entry's documents."""
    found = (document.get(name) for document in documents if document for name in _WRITTEN)
    return [text for text in found if isinstance(text, str) and text]


class Origin(msgspec.Struct, frozen=True):
    """Where an audit entry's documents say that something comes from."""

    session_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()


def origin_in(*documents: dict[str, Any] | None) -> Origin:
    """The session, the source messages and the users that an audit entry's documents name."""
    session_id, sources, users = None, dict[str, None](), dict[str, None]()
    for document in documents:
        if document:
            session_id = session_id or document.get("session_id")
            sources |= dict.fromkeys(map(str, document.get("source_message_ids") or ()))
            users |= dict.fromkeys(map(str, document.get("related_users") or ()))
    return Origin(None if session_id is None else str(session_id), tuple(sources), tuple(users))
