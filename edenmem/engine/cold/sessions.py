"""Operate cold runs: run them, list unfinished ranges, and retry failed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from edenmem.engine.cold.report import ColdReport, Tally
from edenmem.engine.cold.runner import ColdOptions, ColdRunner, SessionWork
from edenmem.engine.runtime.runtime import Runtime
from edenmem.models.formation import Formation, FormationStatus

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


class ColdSessions:
    """Operations on quiet sessions."""

    def __init__(self, runtime: Runtime, serve: Callable[[Runtime], SessionWork]) -> None:
        self._runtime = runtime
        self._serve = serve
        self._formations = runtime.store.formations

    async def run(
        self, options: ColdOptions, *, stop: asyncio.Event, progress: Callable[[Tally], None]
    ) -> ColdReport:
        """Process quiet sessions; see `ColdRunner.run`."""
        runner = ColdRunner(self._runtime, self._serve, progress=progress)
        return await runner.run(options, stop=stop)

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
        why_not = None
        if formation.status is not FormationStatus.FAILED:
            why_not = f"status is {formation.status}, not failed"
        elif not dry_run and not self._formations.retry(formation.id, now=self._runtime.clock()):
            why_not = "another range of its session is unfinished"
        return RetryReport(
            id=formation.id,
            session_id=formation.session_id,
            agent_id=formation.agent_id,
            retried=why_not is None,
            why_not=why_not,
        )
