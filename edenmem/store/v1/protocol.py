"""What a source of v1 offers, and the stage that its documents are laid out on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.v1 import V1Damage, V1Ref
from edenmem.models.v1_documents import V1Account, V1Read, V1StagedDocument


class V1Source(Protocol):
    """v1 as it is kept somewhere. Nothing is ever written there. Blocks."""

    @property
    def location(self) -> str:
        """Where it is, without secrets."""

    def counts(self) -> Mapping[str, int]:
        """How many documents each of v1's collections has, as far as can be told beforehand;
        what cannot be read counts too."""

    def accounts(self) -> Iterator[V1Account]:
        """The host's users and agents, if they are there too."""

    def documents(self, canonical: Callable[[str], str]) -> Iterator[V1Read]:
        """Every document of v1's collections, whatever its state, one after another.

        ``canonical``: account → canonical id.
        """

    def collections(self) -> frozenset[str]:
        """The collections that are there, empty ones included."""

    def damage(self) -> Sequence[V1Damage]:
        """What is missing or cannot be read, once `accounts` and `documents` are at their end."""

    def close(self) -> None:
        """Let go of files and sockets."""


class V1Stage(Protocol):
    """All documents of a source in a temporary file, so that they can be looked up and joined
    without holding them in memory.

    First `add_accounts` and `add`, then once `settle`, then the questions. Which memories a list
    *uses* is decided by `settle`: an id counts once for each scope and role, and only if the
    memory is there, of the same agent, and may be in such a list at all; all others are refused.

    A scope is a text here: ``agent``, ``shard/`` and the shard's id, ``user/`` and the user's id.
    """

    def add_accounts(self, accounts: Iterable[V1Account]) -> None:
        """Lay out users and agents."""

    def add_people(self, people: Iterable[tuple[str, str]]) -> None:
        """Lay out (account, canonical id) of people who are known elsewhere; what the accounts
        say goes before it."""

    def canonical(self, account_id: str) -> str:
        """The canonical id of an account; the id itself if nothing else is known."""

    def add(self, reads: Iterable[V1Read]) -> None:
        """Lay out documents."""

    def settle(self, *, merge: bool) -> None:
        """Judge all lists. ``merge``: active shards are the agent's own scope."""

    def counts(self, agents: Sequence[str] = ()) -> dict[str, int]:
        """Documents by collection; with ``agents``, only theirs and those of nobody."""

    def agents(self) -> list[str]:
        """The agents of all documents, in order; "" first if there are documents of nobody."""

    def account(self, account_id: str) -> V1Account | None:
        """A user or an agent by id, or a user by canonical id."""

    def accounts_of(self, person_id: str) -> list[V1Account]:
        """The accounts of users that have this canonical id, by id."""

    def agent_accounts(self) -> Iterator[V1Account]:
        """The accounts of agents, by id."""

    def damage(self, collections: Collection[str]) -> Sequence[V1Damage]:
        """What the documents as a whole say is missing: repeated ids, and collections that are not
        among these ``collections`` although documents refer to them."""

    def used(self, agent_id: str, scope: str) -> Iterator[V1StagedDocument]:
        """The memories that lists add to a scope."""

    def has_accounts(self, *, agents: bool) -> bool:
        """Whether there are users (or ``agents``) at all."""

    def unknown_fields(self) -> dict[str, int]:
        """``collection.field`` → how many documents have that unknown field."""

    def find(self, ref: V1Ref) -> V1StagedDocument | None:
        """One document."""

    def shards(self, agent_id: str) -> list[V1StagedDocument]:
        """The agent's shards, oldest first."""

    def user_texts(self, agent_id: str) -> Iterator[V1StagedDocument]:
        """The texts of an agent's users, by user; of one user the oldest first."""

    def user_ids(self, agents: Sequence[str], *, unused: bool) -> Iterator[str]:
        """The users with a text of one of these agents, and those whom a memory of theirs names
        that a list uses (with ``unused``: any memory); in order, each once."""

    def facts(self, agent_id: str) -> Iterator[tuple[str, int, int, V1StagedDocument]]:
        """Facts in use as (scope, number of lists that have it, number of scopes that use it,
        memory), by scope and text, of one text the oldest first."""

    def pending_scopes(self, agent_id: str) -> list[tuple[str, list[int]]]:
        """Scopes with something in a buffer, in order, and the numbers of the documents whose
        lists make up each."""

    def pending(self, lister: int, scope: str) -> Iterator[tuple[int, int, V1StagedDocument]]:
        """What a document's list adds to a scope's buffer, in order: (number of times that it is
        listed, number of scopes that use it, memory)."""

    def find_unlisted(self, agent_id: str, scope: str, memory_ids: Sequence[str]) -> set[str]:
        """Those of these memories of an agent that are in no buffer of a scope."""

    def list_absorbed_scopes(self, agent_id: str) -> list[str]:
        """Scopes with directives or suggestions that are in a text already, in order."""

    def text_written_at(self, agent_id: str, scope: str) -> datetime | None:
        """When a scope's text was last written, as far as its documents tell."""

    def find_absorbed(self, agent_id: str, scope: str) -> Iterator[V1StagedDocument]:
        """Those of one scope, by id."""

    def find_refused(self, lister: int) -> Iterator[tuple[str, str]]:
        """Ids in a document's lists that are not used, in order, and why: "dangling",
        "foreign_agent", "foreign_user", "wrong_type" or "wider" (it has no type, and a list of a
        narrower scope has it too)."""

    def episodes(self, agent_id: str) -> Iterator[V1StagedDocument]:
        """The agent's episodes, by id."""

    def leftovers(self, agent_id: str) -> Iterator[tuple[str, V1StagedDocument]]:
        """Everything else by collection and id: "bad" ones, facts that no shard lists
        ("unlisted") or whose shard has no document ("shardless"), directives and suggestions that
        are "absorbed", that only a list that may not have them names ("refused"), or whose owner
        has no document ("orphan")."""

    def last_activity(self, agent_id: str, scope: str) -> datetime | None:
        """When something was last written to a scope or about its owner."""

    def close(self) -> None:
        """Remove the file."""
