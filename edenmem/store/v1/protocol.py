"""Protocols for a source of v1 memory, and for the stage that compares it with a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from edenmem.models.v1 import V1Damage, V1Item, V1Ref
from edenmem.models.v1_documents import V1Account, V1Read, V1StagedDocument


class V1Source(Protocol):
    """A read-only source of v1 memory. All methods block."""

    @property
    def location(self) -> str:
        """Return the location, without secrets."""

    def fingerprint(self) -> str:
        """Return a text that changes with the files; empty for a database."""

    def size(self) -> int:
        """Return an estimate of the number of documents; 0 if unknown."""

    def accounts(self) -> Iterator[V1Account]:
        """Yield the host's users and agents, if the source has them."""

    def documents(self, canonical: Callable[[str], str]) -> Iterator[V1Read]:
        """Yield every document of v1's collections, damaged ones included.

        ``canonical`` maps an account to its canonical ID.
        """

    def collections(self) -> frozenset[str]:
        """Return the existing collections, empty ones included."""

    def damage(self) -> Sequence[V1Damage]:
        """Return the damage found, once `accounts` and `documents` are exhausted."""

    def close(self) -> None:
        """Close files and sockets."""


class TargetRow(NamedTuple):
    """An item with the type, key, scope and digest of its target.

    ``origin`` is the digest of its documents, ``text`` that of the target's text, ``outcome`` that
    of an empty store. The row of a buffer has no item.
    """

    agent_id: str
    shard: str | None
    kind: str
    type: str | None
    key: str | None
    scope: str | None
    digest: int | None
    origin: int | None
    text: int | None
    outcome: str
    reason: str
    item: V1Item | None


class Found(NamedTuple):
    """A stored document; ``pending``, ``at`` and ``place`` are of reflections.

    Of a text, ``at`` is the digest of its content. A version in its history has that as ``digest``.
    """

    type: str
    key: str
    id: str
    scope: str | None
    digest: int
    version: int = 0
    pending: bool = False
    at: int | None = None
    place: int | None = None


class Written(NamedTuple):
    """A document as a run wrote it, according to the log."""

    type: str
    key: str
    digest: int
    version: int
    origin: int
    run_id: str


class V1Stage(Protocol):
    """All documents of a source in a file, for joins without holding them in memory.

    Call `add_accounts` and `add`, then `settle` once, then the queries. `settle` decides which
    memories a list *uses*: an ID counts once per scope and role, and only if the memory exists,
    belongs to the same agent, and may be in such a list; all others are refused. The targets are
    then added and compared with what is found in the store and written in its log.

    A scope of v1 is a text here: ``agent``, ``shard/`` with the shard's ID, or ``user/`` with the
    user's ID. The scope of a target is the key of its scope in v2.
    """

    #: The note of the process that completed the stage; empty for a new stage.
    note: bytes

    def add_accounts(self, accounts: Iterable[V1Account]) -> None:
        """Add users and agents."""

    def add_people(self, people: Iterable[tuple[str, str]]) -> None:
        """Add (account, canonical ID) pairs from elsewhere; the accounts take precedence."""

    def canonical(self, account_id: str) -> str:
        """Return the canonical ID of an account; the ID itself if unknown."""

    def add(self, reads: Iterable[V1Read]) -> None:
        """Add documents."""

    def settle(self, *, merge: bool) -> None:
        """Resolve all lists. ``merge``: active shards belong to the agent's own scope."""

    def counts(self, agents: Sequence[str] = ()) -> dict[str, int]:
        """Count documents by collection; with ``agents``, theirs and those without an agent."""

    def agents(self) -> list[str]:
        """Return the agents of all documents, in order; "" first for documents without an agent."""

    def account(self, account_id: str) -> V1Account | None:
        """Return a user or an agent by ID, or a user by canonical ID."""

    def accounts_of(self, person_id: str) -> list[V1Account]:
        """Return the users' accounts with this canonical ID, by ID."""

    def agent_accounts(self) -> Iterator[V1Account]:
        """Yield the agents' accounts, by ID."""

    def damage(self, collections: Collection[str]) -> Sequence[V1Damage]:
        """Return repeated IDs, and collections not in ``collections`` that documents refer to."""

    def used(self, agent_id: str, scope: str) -> Iterator[V1StagedDocument]:
        """Yield the memories that lists add to a scope."""

    def has_accounts(self, *, agents: bool) -> bool:
        """Return whether there are users, or ``agents``."""

    def unknown_fields(self) -> dict[str, int]:
        """Map ``collection.field`` to the number of documents with that unknown field."""

    def find(self, ref: V1Ref) -> V1StagedDocument | None:
        """Return a document."""

    def shards(self, agent_id: str) -> list[V1StagedDocument]:
        """Return the agent's shards, oldest first."""

    def user_texts(self, agent_id: str) -> Iterator[V1StagedDocument]:
        """Yield the texts of an agent's users, by user, oldest first."""

    def user_ids(self, agents: Sequence[str], *, unused: bool) -> Iterator[str]:
        """Yield the distinct users with a text of these agents, or named by a memory in use."""

    def facts(self, agent_id: str) -> Iterator[tuple[str, int, V1StagedDocument]]:
        """Yield facts in use as (scope, number of lists, memory).

        Ordered by scope and text, oldest first.
        """

    def pending_scopes(self, agent_id: str) -> list[tuple[str, list[int]]]:
        """Return the scopes with a non-empty buffer, in order, and the documents with its lists."""

    def pending(self, lister: int, scope: str) -> Iterator[tuple[int, V1StagedDocument]]:
        """Yield what a document's list adds to a scope's buffer, in order.

        Items are (number of times listed, memory).
        """

    def find_unlisted(self, agent_id: str, scope: str, memory_ids: Sequence[str]) -> set[str]:
        """Return which of these memories of an agent are in no buffer of a scope."""

    def list_absorbed_scopes(self, agent_id: str) -> list[str]:
        """Return the scopes with directives or suggestions already in a text, in order."""

    def text_written_at(self, agent_id: str, scope: str) -> datetime | None:
        """Return when a scope's text was last written, as far as known."""

    def find_absorbed(self, agent_id: str, scope: str) -> Iterator[V1StagedDocument]:
        """Yield the absorbed directives and suggestions of a scope, by ID."""

    def find_refused(self, lister: int) -> Iterator[tuple[str, str]]:
        """Yield the unused IDs in a document's lists, in order, with the reason.

        Reasons are "dangling", "foreign_agent", "foreign_user", "wrong_type" and "wider" (without a
        type, and also in a list of a narrower scope).
        """

    def episodes(self, agent_id: str) -> Iterator[V1StagedDocument]:
        """Yield the agent's episodes, by ID."""

    def noted_leftovers(self, agent_id: str) -> Iterator[tuple[str, V1StagedDocument]]:
        """Yield the documents without another item that have notes or are unusable, with a fate.

        Fates of unusable documents: "unreadable", "duplicate", "bad", "unknown"; of episodes
        "episode"; of facts "unlisted" (in no shard's list) and "shardless" (the shard has no
        document); of directives and suggestions "absorbed", "shared", "refused" (only in a list
        that may not have them) and "orphan" (the owner has no document).
        """

    def scopes_of(self, collection: str, document_id: str) -> set[str]:
        """Return the v1 scopes that use a document."""

    # -- targets -----------------------------------------------------------------------------

    def add_targets(self, rows: Iterable[TargetRow]) -> None:
        """Add targets with their problems, in the order in which they are written."""

    def add_problems(self, items: Iterable[V1Item]) -> None:
        """Add the problems of documents without another item."""

    def add_leftovers(self, fates: Mapping[str, tuple[str, str]], agents: Sequence[str]) -> None:
        """Add the documents without another item, last: reason and outcome by fate."""

    def leftover_numbers(self) -> Iterator[int]:
        """Yield the numbers of the documents of `add_leftovers`."""

    def complete(self, note: bytes) -> None:
        """Mark the stage as complete."""

    def items(self, outcome: str = "") -> Iterator[V1Item | tuple[str, V1StagedDocument]]:
        """Yield all items, or those with an outcome in an empty store.

        A document without another item comes with its fate.
        """

    def problems(self) -> Iterator[bytes]:
        """Yield all problems (MessagePack), by collection and document."""

    def count_problems(self) -> dict[str, int]:
        """Count the problems by kind."""

    # -- the comparison ----------------------------------------------------------------------

    def set_found(self, rows: Iterable[Found]) -> None:
        """Replace the state of the store, and forget all outcomes."""

    def set_written(self, rows: Iterable[Written]) -> None:
        """Replace what the log says that runs wrote."""

    def settle_equal(self, run_id: str) -> None:
        """Set the outcome of targets that the store has: of this run, or already there."""

    def unlike(self, size: int) -> Iterator[list[tuple[int, V1Item]]]:
        """Yield pages of numbered targets that the store lacks or has with other content.

        Also texts of scopes with pending reflections that v1 may have absorbed.
        """

    def unproven(self) -> Iterator[list[tuple[int, V1Item]]]:
        """Yield pages of numbered targets that store and log do not both have unchanged."""

    def count_settled(self) -> int:
        """Count the items without a target, and those with an outcome of their own."""

    def set_outcomes(self, outcomes: Iterable[tuple[int, str]]) -> None:
        """Set the outcomes of numbered targets."""

    def count_outcomes(self) -> list[tuple[str, str | None, str, str, str, int]]:
        """Count items by agent, shard, kind, outcome and reason."""

    def strays(self, scope: str) -> list[str]:
        """Return the pending reflections of a scope without a target."""

    def next_place(self, scope: str, at: int) -> int:
        """Return the first free place among the stored reflections of a scope and time."""

    def surplus(self, type: str) -> Iterator[list[str]]:
        """Yield pages of IDs of stored documents that have no target."""

    def repeated(self, type: str) -> list[str]:
        """Return the keys of a type that several stored documents have."""

    def has_found(self, type: str, key: str) -> bool:
        """Return whether queries find a stored document with this key."""

    def has_scope(self, agent_id: str, scope: str) -> bool:
        """Return whether v1 has a document with this v1 scope."""

    def has_version(self, scope: str, version: int, digest: int) -> bool:
        """Return whether the history of a scope's text has a version with this content."""

    def places_of_text(self, agent_id: str, digest: int) -> set[str]:
        """Return the scopes of the agent's targets with this text."""

    def has_target(self, type: str, key: str) -> bool:
        """Return whether there is a target with this key."""

    def has_origin(self, type: str, collection: str, document_id: str) -> bool:
        """Return whether a text or policy comes from a document."""

    def wrong_buffers(self) -> Iterator[tuple[str, bool]]:
        """Yield the scopes whose buffers differ, and whether v1 has one."""

    def buffer(self, scope: str) -> list[str]:
        """Return the IDs of the reflections that wait in a scope of v1, in order."""

    def close(self, *, keep: bool = False) -> None:
        """Close the file, and remove it unless it is kept for another process."""
