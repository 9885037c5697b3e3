"""Formations, what models cost, and the sessions that a cold run looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import (
    CallUsage,
    Decision,
    Formation,
    FormationStatus,
    Reach,
    UsageEntry,
    UsageTotal,
)
from edenmem.models.host import Message, Session
from edenmem.models.integrity import Finding
from edenmem.models.statistics import UsageOnDay


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a session that are to be formed for an agent, oldest first.

    ``messages`` holds at most what was asked for, ``total`` counts all. ``by_platform`` counts the
    messages that no formation of the agent has because the platform formed them, taken or not.
    """

    messages: tuple[Message, ...]
    total: int
    by_platform: int = 0


class QuietSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that the cold run has to look at. ``seen`` stands for what was in it before it was
    handed out, and goes back to `ColdSessions.settle`."""

    session: Session
    seen: str


class Formations(Protocol):
    """Keeps formations, each moved from state to state in one atomic step."""

    def backlog(
        self, session_id: str, agent_id: str, *, limit: int, reach: Reach = Reach.WAITING
    ) -> Backlog:
        """Messages that no formation of this agent has, failed ones included as having them, and
        that the platform did not form (see `edenmem.store.common.progress`); with ``reach`` more.
        What a formation had until it was superseded counts for none that the platform formed."""

    def claim(self, formation: Formation) -> bool:
        """Insert a formation that is CLAIMED; False if another one of the session and agent is
        unfinished, has the same ``seq``, or has one of its messages. One atomic step."""

    def reclaim(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        lease_until: datetime,
        forced: bool = False,
    ) -> Formation | None:
        """Take over a formation that is RELEASED (and due, or ``forced``), or CLAIMED or RECORDED
        with an expired lease, or already this worker's. Its status becomes CLAIMED, or stays
        RECORDED. None: it is somebody else's, or finished."""

    def renew(self, formation_id: str, *, worker: str, lease_until: datetime) -> bool:
        """Lengthen the worker's lease; False if it is no longer the worker's."""

    def narrow(
        self,
        formation_id: str,
        *,
        worker: str,
        message_ids: Sequence[str],
        last_message_at: datetime,
        now: datetime,
    ) -> bool:
        """Let a CLAIMED formation keep only these of its messages; the others wait again, like
        messages that no formation had. One atomic step; False if the claim is no longer the
        worker's."""

    def record(
        self,
        formation_id: str,
        *,
        worker: str,
        changes: ChangeSet,
        decisions: Sequence[Decision],
        usage: Sequence[CallUsage],
        counts: Mapping[str, Any],
        now: datetime,
        next_step: str = "",
    ) -> bool:
        """CLAIMED → RECORDED with the outcome of a step, and the step that is left after it; False
        if the claim is no longer the worker's. ``decisions`` and ``usage`` are added to those of
        earlier steps, ``counts`` replace them. The next step has no failed attempts yet."""

    def apply_formation(
        self, formation_id: str, *, now: datetime, worker: str | None = None
    ) -> list[ChangeResult]:
        """RECORDED → APPLIED: apply its changes, then move the session's own progress fields
        (``last_memory_message_id`` and counters) if its first agent is this one, never backwards,
        and note what it replaced. Idempotent and safe to run in two processes at once; on SQLite
        one transaction.

        If a step is left, RECORDED → CLAIMED for the ``worker`` whose it is, for everybody else
        → RELEASED; the session's progress stays."""

    def release(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        not_before: datetime | None = None,
        error: str | None = None,
        count: bool = True,
        usage: Sequence[CallUsage] = (),
    ) -> bool:
        """CLAIMED → RELEASED, counting a failed attempt if ``count``."""

    def fail(
        self,
        formation_id: str,
        *,
        worker: str,
        now: datetime,
        error: str,
        usage: Sequence[CallUsage] = (),
    ) -> bool:
        """CLAIMED → FAILED: kept and shown, not tried again by itself."""

    def retry(self, formation_id: str, *, now: datetime) -> bool:
        """FAILED → RELEASED with no attempts counted, by hand; False if it is not failed, or if
        another formation of the session and agent is unfinished."""

    def supersede(self, formation_id: str, *, keep: Sequence[str] = (), now: datetime) -> bool:
        """APPLIED or FAILED → SUPERSEDED: give up its messages, but for those to ``keep``, so that
        they can be formed again. One atomic step, which also makes a cold run look at the session
        again; False if it is in another state, or all its messages are to be kept."""

    def formation(self, formation_id: str) -> Formation | None:
        """One formation, with its changes if it is recorded."""

    def list_formations(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        statuses: Sequence[FormationStatus] = (),
        limit: int | None = None,
    ) -> Iterator[Formation]:
        """Formations without their changes, latest first: those of one session and agent by
        ``seq``, since the clocks of workers may disagree, others by ``created_at``."""

    def find_shared_messages(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Messages that are in several formations of one agent (``related``); none as long as
        the unique key stands."""


class Usage(Protocol):
    """What models cost."""

    def add_usage(self, entry: UsageEntry) -> None:
        """Keep what work outside of formations cost; an id that is there already is left alone."""

    def sum_usage(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> list[UsageTotal]:
        """The calls of formations that began, and of other work that ended, at or after
        ``since``, added up for each model, by its name; failed tries included."""

    def usage_by_day(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Sequence[UsageOnDay]:
        """What `sum_usage` adds up, by day and model."""

    def find_damaged_usage(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        """Records, of formations or of other work, whose calls hold what is no count."""

    def repair_usage(self, findings: Sequence[Finding]) -> int:
        """Write what those records are read as; how many were changed."""


class ColdSessions(Protocol):
    """Sessions in which nothing was said for a while."""

    def quiet_sessions(self, *, before: datetime, rules: str | None) -> Iterator[QuietSession]:
        """Sessions with no message at or after ``before``, longest quiet first, all of them:
        neither deleted nor incognito, and not settled under the same ``rules``.

        A million settled sessions cost next to nothing. ``rules`` None: all quiet sessions,
        settled or not, and nothing is written. They come in pages, without a cursor or snapshot
        between them, so that one may work on each for as long as it takes; whoever does looks
        again at what is in it.
        """

    def settle(self, session_id: str, *, seen: str, rules: str) -> bool:
        """Note that the session was looked at by these rules and has nothing to do: no agent has
        enough unprocessed messages, and no formation is unfinished.

        The note is refused (False) if the session is not any more as it was ``seen``, and it
        falls with the next message (a late one with an old time included), agent or formation
        of the session, a retry included. Where others write the messages, as on MongoDB, that is
        noticed by their number and the newest one's id; and each session is looked at again from
        time to time, whatever is noted of it.
        """
