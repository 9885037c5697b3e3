"""Tasks that outlive a request: writes that must not be lost, and formations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from edenmem.engine.reports import FormationReport
from edenmem.engine.service import MemoryService
from edenmem.errors import EdenmemError
from edenmem.server.problems import log_text

_log = logging.getLogger(__name__)

#: Maximum number of sessions waiting for formation; the cold run processes the others.
_MOST_WAITING = 1000
#: Time limit for storing incomplete answers when the server stops.
_LAST_WORDS = 5.0


class Background:
    """The background tasks of the server.

    Args:
        service: Forms memories.
        concurrency: Maximum number of concurrent formations.
    """

    def __init__(self, service: MemoryService, *, concurrency: int) -> None:
        self._service = service
        self._slots = asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._forming: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._again: set[tuple[str, str]] = set()
        self._closing = asyncio.Event()
        self._relays: set[asyncio.Future[None]] = set()

    @contextmanager
    def relaying(self) -> Iterator[None]:
        """Delay the end of the server until this context ends, because it starts a task then."""
        relay = asyncio.get_running_loop().create_future()
        self._relays.add(relay)
        try:
            yield
        finally:
            self._relays.discard(relay)
            relay.set_result(None)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that finishes before the server stops."""
        task = asyncio.create_task(work)
        self.watch(task)
        return task

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Wait for a task before the server stops, and log its failure."""
        self._tasks.add(task)
        task.add_done_callback(self._note)

    async def closes_within(self, seconds: float) -> bool:
        """Wait for the end of the server, and return whether it came within this time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), seconds)
        return self._closing.is_set()

    def form_later(self, session_id: str, agent_id: str) -> None:
        """Schedule the formation of a session, if it is due; one at a time per session."""
        key = (session_id, agent_id)
        if (
            self._closing.is_set()
            or not self._service.can_form
            or len(self._forming) > _MOST_WAITING
        ):
            return
        if key in self._forming:
            self._again.add(key)
            return
        self._forming[key] = asyncio.create_task(self._form(key))

    async def drain(self) -> None:
        """Cancel formations, and finish all writes."""
        self._closing.set()
        forming = list(self._forming.values())
        for task in forming:
            task.cancel()
        await asyncio.gather(*forming, return_exceptions=True)
        if self._relays:  # they were cancelled, but still have to store incomplete answers
            await asyncio.wait(self._relays, timeout=_LAST_WORDS)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _form(self, key: tuple[str, str]) -> None:
        session_id, agent_id = key
        try:
            async with self._slots:
                self._again.discard(key)
                _log_formed(await self._service.maybe_form_memories(session_id, agent_id=agent_id))
        except EdenmemError as error:
            _log.warning("formation of session %s failed: %s", session_id, log_text(error))
            _log.debug("%s: %s", type(error).__name__, error.message)
        except Exception as error:  # noqa: BLE001 - the cold run retries
            _log.error("formation of session %s failed", session_id, exc_info=error)
        finally:
            self._forming.pop(key, None)
            if key in self._again:
                self._again.discard(key)
                self.form_later(*key)

    def _note(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, EdenmemError):
            _log.error("background task failed: %s", log_text(error))
            _log.debug("%s: %s", type(error).__name__, error.message)
        else:
            _log.error("background task failed: %s", type(error).__name__, exc_info=error)


def _log_formed(reports: Sequence[FormationReport]) -> None:
    """Log the results of a formation in numbers."""
    if formed := [each for each in reports if each.outcome in ("applied", "resumed")]:
        _log.info(
            "formed memories from %d messages: %d facts added, %d changed or removed,"
            " %d reflections",
            sum(each.messages for each in formed),
            sum(each.facts_added for each in formed),
            sum(each.facts_revised + each.facts_removed for each in formed),
            sum(sum(each.reflections.values()) for each in formed),
        )
