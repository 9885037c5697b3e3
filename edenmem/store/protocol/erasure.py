"""What a store does so that a person, a session, a group or an agent can be forgotten.

Every method may be called again after it was cut off: it goes on with what is left. The order in
which the engine calls them is told in `edenmem.engine.erasure.forgetting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from edenmem.models.backup import StoredUser
from edenmem.models.changes import AuditEntry
from edenmem.models.forgetting import Compaction, Forgetting, Passage, Traces
from edenmem.models.host import Session
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope


class Erasing(Protocol):
    """Finds and removes traces."""

    # -- finding -----------------------------------------------------------------------------

    def find_agent_ids(self) -> list[str]:
        """The ids of all agents that the host knows, or of which anything is stored."""

    def scopes_of(self, agent_id: str) -> list[Scope]:
        """All scopes of an agent of which anything is stored, history and audit included."""

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        """The account with this id and all whose ``eden_user_id`` it is, by id; deleted ones too.

        The account with this id may itself be linked to another one.
        """

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        """The sessions of any of these accounts, of this agent or of this group, deleted ones too,
        each once. Those in which an account wrote are its sessions too."""

    def names_shown(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        """The names under which the accounts appear in messages of these sessions."""

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        """The ids of the messages that the accounts wrote in these sessions."""

    def authors(self, message_ids: Sequence[str]) -> dict[str, str]:
        """Who wrote each of these messages; empty for one that no person wrote. Messages that are
        not stored are left out."""

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        """How many sessions and messages of the host there are, of which `erase_messages` speaks;
        kinds of which there is nothing are left out."""

    def find_derived(self, reflection_ids: Sequence[str]) -> list[Reflection]:
        """Reflections that were derived (propagated) from one of these."""

    def trace_reflections(self, traces: Traces) -> Iterator[Reflection]:
        """The reflections that are traces themselves, absorbed ones included."""

    def trace_texts(self, traces: Traces) -> Iterator[Passage]:
        """The facts, reflections and texts that are traces."""

    def count_traces(self, traces: Traces) -> dict[str, int]:
        """What there is to be removed, by kind; kinds of which there is nothing are left out."""

    def passages(self) -> Iterator[Passage]:
        """Every text that is stored, except for the host's own: conversations, names, personas.

        Read in pages, without a cursor or snapshot between them.
        """

    # -- forgettings -------------------------------------------------------------------------

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        """Keep it as open; one that is open already stays as it is, with more blocks."""

    def forgettings(self) -> list[Forgetting]:
        """All, open ones first, then the latest."""

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        """Drop its subject, and write the audit entry, which has no content. Changes that were
        decided up to ``at`` stay refused."""

    # -- removing ----------------------------------------------------------------------------

    def settle_formations(self, traces: Traces, *, at: datetime) -> int:
        """Make sure that nothing which was said so far is formed later; how many formations were
        changed.

        What was recorded is applied, as far as it is not blocked; claims are withdrawn, so that
        nobody can record an outcome; messages without a formation get one that is done. Decisions
        and errors are emptied.
        """

    def erase(self, traces: Traces, derived: Sequence[str], *, at: datetime) -> dict[str, int]:
        """Remove the derived reflections in the order given, then all memory that is a trace, with
        its vectors, index entries and history; empty its audit entries; drop cached contexts.
        What was removed, by kind."""

    def erase_messages(self, traces: Traces) -> dict[str, int]:
        """Remove the ``own`` sessions with their messages, the messages and memberships of the
        accounts in ``shared`` ones, and the accounts.

        Raises:
            UsageError: they are not ours: another program keeps them in this database.
        """

    def redact(self, passages: Sequence[Passage]) -> int:
        """Empty these entries of history, audit and formations, previous texts and cached
        contexts, and keep what else they say; how many there were. Other places are left alone."""

    def compact(self) -> Compaction:
        """Make sure that deleted content is gone from the store's files, as far as that is in its
        power."""
