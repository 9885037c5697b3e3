"""Tasks that outlive a request: writes that must not be lost, and formations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from edenmem.engine.reports import FormationReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.errors import EdenmemError, NotFoundError
from edenmem.models.formation import Trigger
from edenmem.models.ids import utc_now
from edenmem.server.problems import log_text
from edenmem.settings.schema import ServerSettings

_log = logging.getLogger(__name__)
#: What memory was formed; 'edenmem serve' shows it without ``-v``.
told = logging.getLogger("edenmem.server.memory")

#: Maximum number of sessions to watch; the cold run forms the others.
_MOST_WATCHED = 10_000
#: Delay before a failed formation is tried again.
_RETRY_SECONDS = 600.0
#: Time limit for storing incomplete answers when the server stops.
_LAST_WORDS = 5.0


class Background:
    """The background tasks of the server.

    Args:
        service: Forms memories.
        settings: How long a chat must be quiet, and how many are formed at once.
    """

    def __init__(self, service: MemoryService, settings: ServerSettings) -> None:
        self._service = service
        self._form_after = settings.form_after
        self._slots = asyncio.Semaphore(settings.formation_concurrency)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watched: dict[tuple[str, str], asyncio.Event] = {}  # set when something is said
        self._watches: set[asyncio.Task[None]] = set()
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

    def form_later(self, session_id: str, agent_id: str, *, is_answered: bool = True) -> None:
        """Form a session when enough was said, and when it goes quiet; one task per session."""
        key = (session_id, agent_id)
        if (said := self._watched.get(key)) is None:
            if not self._may_watch():
                return
            said = self._watched[key] = asyncio.Event()
            task = asyncio.create_task(self._watch(key, said))
            self._watches.add(task)
            task.add_done_callback(self._watches.discard)
        if is_answered:
            said.set()

    def _may_watch(self) -> bool:
        is_open = not self._closing.is_set() and self._service.can_form
        return is_open and len(self._watched) < _MOST_WATCHED

    async def resume(self) -> None:
        """Watch the sessions that an earlier server may have left waiting."""
        if self._may_watch():
            for key in await in_thread(self._service.chats.find_recent):
                self.form_later(*key)

    async def drain(self) -> None:
        """Cancel formations, and finish all writes."""
        self._closing.set()
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        if self._relays:  # they were cancelled, but still have to store incomplete answers
            await asyncio.wait(self._relays, timeout=_LAST_WORDS)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, key: tuple[str, str], said: asyncio.Event) -> None:
        """Form a session until it has gone quiet and everything is formed."""
        wait: float | None = self._form_after
        try:
            while wait is not None or said.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(said.wait(), wait)
                is_quiet = not said.is_set()
                said.clear()
                wait = await self._form(*key, is_quiet=is_quiet)
        finally:
            del self._watched[key]

    async def _form(self, session_id: str, agent_id: str, *, is_quiet: bool) -> float | None:
        """Form a session if it is due, and return the seconds to wait; None if nothing is left."""
        trigger = Trigger.COLD if is_quiet else Trigger.THRESHOLD
        try:
            async with self._slots:
                due_at = self._service.chats.due_at
                due = await in_thread(due_at, session_id, agent_id) if is_quiet else None
                if due is not None and (left := (due - utc_now()).total_seconds()) > 0:
                    return left  # a longer pause is awaited, or another server has new messages
                reports = await self._service.form_memories(
                    session_id, agent_id=agent_id, trigger=trigger
                )
            _log_formed(session_id, reports)
            if any(each.outcome == "waiting" for each in reports):
                return _RETRY_SECONDS
            return None if is_quiet else self._form_after
        except NotFoundError:
            return None
        except EdenmemError as error:
            _log.warning("formation of session %s failed: %s", session_id, log_text(error))
            _log.debug("%s: %s", type(error).__name__, error.message)
        except Exception as error:  # noqa: BLE001 - it is tried again
            _log.error("formation of session %s failed", session_id, exc_info=error)
        return _RETRY_SECONDS

    def _note(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, EdenmemError):
            _log.error("background task failed: %s", log_text(error))
            _log.debug("%s: %s", type(error).__name__, error.message)
        else:
            _log.error("background task failed: %s", type(error).__name__, exc_info=error)


def _log_formed(session_id: str, reports: Sequence[FormationReport]) -> None:
    """Log the results of a formation in numbers."""
    if formed := [each for each in reports if each.outcome in ("applied", "resumed")]:
        told.info(
            "formed memory of session %s (messages: %d, facts added: %d, changed or removed: %d,"
            " reflections: %d)",
            session_id,
            sum(each.messages for each in formed),
            sum(each.facts_added for each in formed),
            sum(each.facts_revised + each.facts_removed for each in formed),
            sum(sum(each.reflections.values()) for each in formed),
        )
    if unfinished := [each for each in reports if each.outcome in ("waiting", "failed")]:
        told.warning(
            "memory of session %s is not formed yet (%s); see why: edenmem status",
            session_id,
            ", ".join(dict.fromkeys(each.outcome for each in unfinished)),
        )
