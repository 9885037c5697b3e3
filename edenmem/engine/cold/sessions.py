"""Operate cold runs: run them, list unfinished ranges, and retry failed ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.engine.formation.sharing import Backlogs, InForce
from edenmem.engine.runtime.runtime import Runtime
from edenmem.memory.formations import retry
from edenmem.models.formation import Formation, FormationStatus, Reading
from edenmem.models.host import Session

if TYPE_CHECKING:
    from edenmem.engine.cold.report import ColdReport
    from edenmem.engine.cold.runner import SessionWork

_STATES: tuple[tuple[FormationStatus, ...], ...] = (
    (FormationStatus.CLAIMED, FormationStatus.RECORDED),
    (FormationStatus.RELEASED,),
    (FormationStatus.FAILED,),
)


class RetryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of retrying a formation."""

    id: str
    session_id: str
    agent_id: str
    retried: bool
    why_not: str | None = None


class SharingReport(msgspec.Struct, frozen=True, kw_only=True):
    """How edenmem shares formation with the platform.

    ``unread`` and ``twice`` count the messages of `Reading` in ``sessions`` of the latest sessions;
    messages count once per agent.
    """

    in_force: InForce
    unread: int = 0
    twice: int = 0
    sessions: int = 0


class ColdSessions:
    """Operations on quiet sessions."""

    def __init__(self, runtime: Runtime, serve: Callable[[Runtime], SessionWork]) -> None:
        self._runtime = runtime
        self._serve = serve
        self._formations = runtime.store.formations

    @property
    def run(self) -> partial[Coroutine[Any, Any, ColdReport]]:
        """Process all due sessions; see `edenmem.engine.cold.runner.run_cold`."""
        from edenmem.engine.cold.runner import run_cold  # loaded for a run alone, with its models

        return partial(run_cold, self._runtime, self._serve)

    def sharing(self, agent_id: str | None = None, *, latest: int = 100) -> SharingReport:
        """Return the former in force, and irregular readings in the latest sessions."""
        in_force = Backlogs(self._runtime).in_force
        if not in_force.shared:
            return SharingReport(in_force=in_force)
        found = list(self._formations.find_readings(agent_id=agent_id, latest=latest))
        return SharingReport(
            in_force=in_force,
            unread=sum(each.unread for each in found),
            twice=sum(each.twice for each in found),
            sessions=len({each.session_id for each in found}),
        )

    def readings(self, session: Session) -> list[Reading]:
        """Return the irregular readings of a session, for each agent."""
        if not Backlogs(self._runtime).in_force.shared:
            return []
        found = []
        for agent_id in session.agents:
            backlog = self._formations.backlog(session.id, agent_id, limit=0)
            if backlog.passed or backlog.read_twice:
                found.append(
                    Reading(
                        session_id=session.id,
                        agent_id=agent_id,
                        unread=backlog.passed,
                        twice=backlog.read_twice,
                    )
                )
        return found

    def pending(self, session: Session) -> int:
        """Return the number of messages to form, for the agent with the most."""
        backlogs = (self._formations.backlog(session.id, each, limit=0) for each in session.agents)
        return max((backlog.total for backlog in backlogs), default=0)

    def unfinished(self, agent_id: str | None = None) -> list[Formation]:
        """Return the running ranges, then the waiting and the failed ones."""
        return [
            formation
            for statuses in _STATES
            for formation in self._formations.list_formations(agent_id=agent_id, statuses=statuses)
        ]

    def failed(self, agent_id: str | None = None) -> list[Formation]:
        """Return the failed ranges; of one session, the oldest first."""
        found = self._formations.list_formations(
            agent_id=agent_id, statuses=(FormationStatus.FAILED,)
        )
        return list(found)[::-1]

    def retry(self, formation: Formation, *, dry_run: bool = False) -> RetryReport:
        """Schedule a failed range for the next run, with a new count of attempts."""
        from edenmem.engine.formation.claims import step  # as `run`

        why_not, now = None, self._runtime.clock()
        if formation.status is not FormationStatus.FAILED:
            why_not = f"status is {formation.status}, not failed"
        elif not dry_run and step(self._formations, formation, retry, now=now) is None:
            why_not = "another range of its session is unfinished"
        return RetryReport(
            id=formation.id,
            session_id=formation.session_id,
            agent_id=formation.agent_id,
            retried=why_not is None,
            why_not=why_not,
        )
