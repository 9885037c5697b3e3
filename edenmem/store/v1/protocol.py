"""Protocols for a source of v1 memory, and for the stage that joins its documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.v1 import V1Damage, V1Ref
from edenmem.models.v1_documents import V1Account, V1Read, V1StagedDocument


class V1Source(Protocol):
    """A read-only source of v1 memory. All methods block."""

    @property
    def location(self) -> str:
        """Return the location, without secrets."""

    def counts(self) -> Mapping[str, int]:
        """Estimate the number of documents per collection, unreadable ones included."""

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


class V1Stage(Protocol):
    """All documents of a source in a temporary file, for joins without holding them in memory.

    Call `add_accounts` and `add`, then `settle` once, then the queries. `settle` decides which
    memories a list *uses*: an ID counts once per scope and role, and only if the memory exists,
    belongs to the same agent, and may be in such a list; all others are refused.

    A scope is a text here: ``agent``, ``shard/`` with the shard's ID, or ``user/`` with the user's
    ID.
    """

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

    def facts(self, agent_id: str) -> Iterator[tuple[str, int, int, V1StagedDocument]]:
        """Yield facts in use as (scope, number of lists, number of scopes, memory).

        Ordered by scope and text, oldest first.
        """

    def pending_scopes(self, agent_id: str) -> list[tuple[str, list[int]]]:
        """Return the scopes with a non-empty buffer, in order, and the documents with its lists."""

    def pending(self, lister: int, scope: str) -> Iterator[tuple[int, int, V1StagedDocument]]:
        """Yield what a document's list adds to a scope's buffer, in order.

        Items are (number of times listed, number of scopes that use it, memory).
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

    def leftovers(self, agent_id: str) -> Iterator[tuple[str, V1StagedDocument]]:
        """Yield all other documents with the reason, by collection and ID.

        Reasons: "bad"; for facts "unlisted" (in no shard's list) and "shardless" (the shard has no
        document); for directives and suggestions "absorbed", "refused" (only in a list that may not
        have them) and "orphan" (the owner has no document).
        """

    def last_activity(self, agent_id: str, scope: str) -> datetime | None:
        """Return when a scope or data about its owner was last written."""

    def close(self) -> None:
        """Remove the file."""
