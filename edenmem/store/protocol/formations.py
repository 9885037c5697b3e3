"""Protocols for formations, the cost of models, and sessions due for a cold run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import (
    Formation,
    FormationStatus,
    Reach,
    Reading,
    UsageEntry,
)
from edenmem.models.host import Message, Session
from edenmem.models.statistics import UsageOnDay


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a session that are pending formation for an agent, oldest first.

    ``messages`` is limited as requested; ``total`` counts all, ``passed`` the first of these that
    the platform's cursor has passed. ``by_platform`` counts messages that only the platform has
    read, selected or not, ``read_twice`` those that both have read. ``unnoted`` are messages whose
    proof is to be copied to a formation. ``touched_at`` is when the session last changed; the
    platform changes it with its cursor. ``left_to_platform`` counts messages that
    `edenmem.engine.formation.sharing` has removed.
    """

    messages: tuple[Message, ...]
    total: int
    passed: int = 0
    by_platform: int = 0
    read_twice: int = 0
    unnoted: tuple[str, ...] = ()
    touched_at: datetime | None = None
    left_to_platform: int = 0


class QuietSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session for the cold run to check.

    ``seen`` is a digest of the session's state when it was returned; pass it to
    `ColdSessions.settle`.
    """

    session: Session
    seen: str


class Formations(Protocol):
    """Formations, and what was formed of a session.

    `edenmem.memory.formations` has the rules of their states.
    """

    def backlog(
        self, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
    ) -> Backlog:
        """Return messages that neither a formation of this agent nor the platform has processed.

        Messages of a failed formation count as processed; those of a superseded one are pending.
        ``reach`` widens the selection, but never to the source messages of forgotten facts. See
        `edenmem.store.common.progress`.
        """

    def find_blocked(self, message_ids: Sequence[str]) -> set[str]:
        """Return the source messages of forgotten facts, which must not be formed again."""

    def proof(self, session_id: str, agent_id: str) -> set[str]:
        """Return new proof: messages of this agent that the platform read, and not yet noted.

        Proof is the source messages of facts and reflections that edenmem did not form.
        """

    def platform_memory_at(self, *, since: datetime) -> datetime | None:
        """Return the time of the platform's newest memory after ``since``, if any."""

    def find_readings(
        self, *, agent_id: str | None = None, latest: int | None = None
    ) -> Iterator[Reading]:
        """Yield irregular readings of all sessions, or of the ``latest`` active ones."""

    def advance_cursor(self, session_id: str, *, past_replies: bool = False) -> bool:
        """Move the platform's cursor past all read messages, and return whether it was moved.

        ``past_replies``: also past the replies to the last one, up to the next person's message.
        The platform puts an old cursor back when it writes an older copy of the session.
        """

    def claim(self, formation: Formation) -> bool:
        """Insert a formation, claimed or finished, in one atomic step.

        On MongoDB a claim moves the platform's cursor to the session's newest message, and resets
        its counters. The cursor is never moved back.

        Returns:
            False if another formation of the session and agent is unfinished, has the same ``seq``,
            or has one of its messages.
        """

    def move(self, before: Formation, after: Formation) -> bool:
        """Replace a state by the next one (`edenmem.memory.formations`), in one atomic step.

        Only changed fields are written. A superseded formation makes its session due for a cold
        run.

        Returns:
            False if the formation is in another state than ``before``, or ``after`` is unfinished
            and another one of its session and agent is too.
        """

    def apply_formation(
        self, before: Formation, after: Formation, changes: ChangeSet
    ) -> list[ChangeResult] | None:
        """Apply the recorded changes, and `move`; None if the formation is in another state.

        Idempotent, and safe in two processes at the same time; one transaction on SQLite.
        """

    def formation(self, formation_id: str) -> Formation | None:
        """Return a formation, with its changes if it is recorded."""

    def list_formations(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        statuses: Sequence[FormationStatus] = (),
        limit: int | None = None,
    ) -> Iterator[Formation]:
        """Yield formations without their changes, latest first.

        Those of one session and agent are ordered by ``seq``, since the clocks of workers may
        disagree; others by ``created_at``.
        """


class Usage(Protocol):
    """The cost of model calls."""

    def add_usage(self, entry: UsageEntry) -> None:
        """Record the cost of work outside formations; an existing ID is left unchanged."""

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        """Sum the calls by day and model, in this order, failed attempts included.

        Counts formations that began, and other work that ended, at or after ``since``.
        """


class ColdSessions(Protocol):
    """Sessions without recent messages."""

    def quiet_sessions(self, *, before: datetime, rules: str | None) -> Iterator[QuietSession]:
        """Yield sessions without messages at or after ``before``, longest quiet first.

        Deleted and incognito sessions are left out, and sessions settled under the same ``rules``;
        a million of those cost next to nothing. With ``rules`` None, settled sessions are included
        and nothing is written.

        Sessions come in pages without a cursor or snapshot in between, so the caller can work on
        each for any length of time and must read its state again.
        """

    def settle(self, session_id: str, *, seen: str, rules: str) -> bool:
        """Note that a session has no work under these rules.

        That is: no agent has enough unprocessed messages, and no formation is unfinished.

        Returns False if the session no longer matches ``seen``. The note expires with the session's
        next message (also a late one with an old time), agent, formation or retry. Where the
        platform writes the messages, as on MongoDB, a new message is detected by the number of
        messages and the newest ID, and each session is checked again periodically.
        """
