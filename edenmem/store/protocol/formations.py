"""What a store does for formations: what is left to form, claims, outcomes, and their effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import CallUsage, Decision, Formation, FormationStatus, Reach
from edenmem.models.host import Message


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a session that are to be formed for an agent, oldest first.

    ``messages`` holds at most what was asked for, ``total`` counts all. ``by_platform`` counts the
    messages that no formation of the agent has because the platform formed them, taken or not.
    """

    messages: tuple[Message, ...]
    total: int
    by_platform: int = 0


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
    ) -> bool:
        """CLAIMED → RECORDED with the outcome; False if the claim is no longer the worker's."""

    def apply_formation(self, formation_id: str, *, now: datetime) -> list[ChangeResult]:
        """RECORDED → APPLIED: apply its changes, then move the session's own progress fields
        (``last_memory_message_id`` and counters) if its first agent is this one, never backwards,
        and note what it replaced. Idempotent and safe to run in two processes at once; on SQLite
        one transaction."""

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

    def formations(
        self,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        statuses: Sequence[FormationStatus] = (),
        limit: int | None = None,
    ) -> Iterator[Formation]:
        """Formations without their changes, latest first: those of one session and agent by
        ``seq``, since the clocks of workers may disagree, others by ``created_at``."""
