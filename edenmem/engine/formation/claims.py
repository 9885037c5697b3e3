"""Claims of workers on messages: a lease that is renewed during the work.

Nothing is marked as done before it is done. The lease of a worker that dies expires. A cancelled
worker gives its claim back. After a failure the range is retried after a pause, and after the last
attempt it is kept as failed, for inspection.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from edenmem.engine.formation.transcript import measure_length
from edenmem.engine.runtime.concurrency import in_thread, in_thread_to_the_end
from edenmem.memory import formations as steps
from edenmem.models.formation import UNFINISHED, CallUsage, Formation, FormationStatus, Trigger
from edenmem.models.host import Message
from edenmem.models.ids import as_utc, new_id
from edenmem.settings.schema import FormationSettings
from edenmem.store.protocol.formations import Formations

T = TypeVar("T")
P = ParamSpec("P")

#: Maximum attempts at one step while others change the formation.
_TRIES = 5


class LeaseLost(Exception):
    """Another worker has the claim; results must not be written."""


def worker_id() -> str:
    """Return a unique name for a worker: host, process and random digits."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def choose_range(messages: Sequence[Message], settings: FormationSettings) -> tuple[Message, ...]:
    """Return the oldest messages that fit into one range, at least one if any."""
    chosen: list[Message] = []
    characters = 0
    for message in messages[: settings.max_messages]:
        characters += measure_length(message, settings)
        if chosen and characters > settings.max_characters:
            break
        chosen.append(message)
    return tuple(chosen)


def halve(
    messages: Sequence[Message], settings: FormationSettings
) -> tuple[Sequence[Message], ...]:
    """Split a range into an older and a newer part of about equal length.

    A range with a single message has no second part.
    """
    if len(messages) < 2:
        return (messages,)
    length = sum(measure_length(message, settings) for message in messages)
    half = msgspec.structs.replace(settings, max_characters=max(1, length // 2))
    count = min(len(choose_range(messages, half)), len(messages) - 1)
    return messages[:count], messages[count:]


def step(
    formations: Formations,
    known: Formation,
    rule: Callable[Concatenate[Formation, P], Formation | None],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Formation | None:
    """Take a step of `edenmem.memory.formations`; return the next state. Blocks.

    If the formation is in another state than ``known``, the rule decides again. Returns None if the
    step is not possible, or if others change the formation all the time.
    """
    for _ in range(_TRIES):
        after = rule(known, *args, **kwargs)
        if after is None or formations.move(known, after):
            return after
        found = formations.formation(known.id)
        if found is None:
            return None
        known = found
    return None


class Claims:
    """The claims of one worker."""

    def __init__(
        self,
        formations: Formations,
        settings: FormationSettings,
        clock: Callable[[], datetime],
        *,
        worker: str | None = None,
    ) -> None:
        self.worker = worker or worker_id()
        self._formations = formations
        self._settings = settings
        self._clock = clock

    def find_unfinished(self, session_id: str, agent_id: str) -> Formation | None:
        """Find the formation that blocks a new one, without its changes. Blocks."""
        found = self._formations.list_formations(
            session_id=session_id, agent_id=agent_id, statuses=UNFINISHED, limit=1
        )
        return next(iter(found), None)

    def draft(
        self, session_id: str, agent_id: str, trigger: Trigger, messages: Sequence[Message]
    ) -> Formation:
        """Return an unclaimed formation of these messages with the next number. Blocks."""
        now = self._clock()
        last = self._formations.list_formations(session_id=session_id, agent_id=agent_id, limit=1)
        return Formation(
            id=new_id(now),
            session_id=session_id,
            agent_id=agent_id,
            seq=next((formation.seq for formation in last), 0) + 1,
            status=FormationStatus.CLAIMED,
            trigger=trigger,
            message_ids=tuple(message.id for message in messages),
            last_message_at=messages[-1].created_at,
            created_at=now,
            updated_at=now,
            worker=self.worker,
            lease_until=self._lease(now),
        )

    def step(
        self,
        known: Formation,
        rule: Callable[Concatenate[Formation, str, datetime, P], Formation | None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Formation | None:
        """Take a step now, as this worker; see `step`. Blocks."""
        return step(self._formations, known, rule, self.worker, self._clock(), *args, **kwargs)

    def take_over(
        self, formation: Formation, *, trigger: Trigger | None = None
    ) -> Formation | None:
        """Claim an unfinished formation for this worker; None if it is not free. Blocks.

        Moves the platform's cursor past it, which an old copy may have put back. A forced
        ``trigger`` takes it even if it was released and waits for its next attempt.
        """
        lease_until = self._lease(self._clock())
        taken = self.step(formation, steps.claim, lease_until=lease_until, trigger=trigger)
        if taken is not None:
            self._formations.advance_cursor(taken.session_id)
        return taken

    async def take(self, work: Callable[[], Formation | None]) -> Formation | None:
        """Run ``work``, which blocks and claims; give the claim back if the task is cancelled."""
        taken: list[Formation | None] = []
        try:
            await in_thread(lambda: taken.append(work()))
        except asyncio.CancelledError:
            for formation in filter(None, taken):
                await self.give_back(formation)
            raise
        return taken[0]

    async def keep(self, formation: Formation, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` while renewing the lease, and stop it if the lease is lost.

        Raises:
            LeaseLost: another worker has the claim.
        """
        working = asyncio.create_task(work)
        renewing = asyncio.create_task(self._renew(formation))
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            renewing.result()
            raise LeaseLost(formation.id)
        finally:
            working.cancel()
            renewing.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)

    async def give_back(
        self, formation: Formation, *, error: str | None = None, usage: Sequence[CallUsage] = ()
    ) -> None:
        """Release the range for an immediate retry, without counting an attempt."""
        await in_thread_to_the_end(
            lambda: self.step(formation, steps.release, error=error, count=False, usage=usage)
        )

    async def count_failure(
        self, formation: Formation, error: str, usage: Sequence[CallUsage]
    ) -> datetime | None:
        """Count a failed attempt; return when to retry, or None after the last attempt."""
        if formation.attempts + 1 >= self._settings.attempts:
            await in_thread(lambda: self.step(formation, steps.fail, error=error, usage=usage))
            return None
        # The pause doubles with each failure, and varies to spread workers out.
        jitter = random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
        pause = self._settings.backoff_seconds * 2**formation.attempts * jitter
        at = as_utc(self._clock() + timedelta(seconds=pause))
        await in_thread(
            lambda: self.step(formation, steps.release, not_before=at, error=error, usage=usage)
        )
        return at

    def _lease(self, now: datetime) -> datetime:
        return as_utc(now + timedelta(seconds=self._settings.lease_seconds))

    async def _renew(self, formation: Formation) -> None:
        """Renew the lease at a third of its time; return when it is lost."""
        held: Formation | None = formation
        while held is not None:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            until = self._lease(self._clock())
            held = await in_thread(
                step, self._formations, held, steps.renew, self.worker, lease_until=until
            )
