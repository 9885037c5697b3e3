"""The memory stages of a chat, each with a time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from edenmem.errors import EdenmemError
from edenmem.server.problems import Refused, log_text
from edenmem.server.proxy.background import Background
from edenmem.server.state import Metrics

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: What a chat lacks without a stage; without any other stage, the memory of that stage.
_EFFECTS = {
    "memory": "chat forwarded without memory",
    "user": "chat forwarded without memory of the user",
    "store": "messages of a chat not stored",
    "answer": "answer of a chat not stored",
    "use": "use of a chat not counted",
}


class Stages:
    """Runs the stages of a chat, and records stages that were left out.

    Args:
        background: Waits for late stages.
        metrics: Counts stages that were left out.
    """

    def __init__(self, background: Background, metrics: Metrics) -> None:
        self._background = background
        self._metrics = metrics
        self.left_out: dict[str, str] = {}

    async def run(
        self,
        name: str,
        work: Coroutine[Any, Any, T],
        seconds: float,
        *,
        or_else: T,
        must_end: bool = False,
    ) -> T:
        """Return the result of a stage, or ``or_else`` if it fails or is late.

        Args:
            name: Name of the stage, for the client and the log.
            work: The stage.
            seconds: Time limit.
            or_else: Result of a failed or late stage.
            must_end: Finish late work in the background instead of canceling it.

        Raises:
            Refused: the stage refused the chat.
        """
        task = asyncio.create_task(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            self._abandon(task, must_end=must_end)
            raise
        if not done:
            self._abandon(task, must_end=must_end)
            late = f"not done within {seconds:g} s"
            later = f"{late}; it continues" if must_end else ""
            self._leave_out(name, late, later, label="late")
            return or_else
        try:
            return task.result()
        except Refused:
            raise
        except EdenmemError as error:
            # The message may name hosts and files, so the client gets only the type.
            self._leave_out(name, type(error).__name__, log_text(error))
            _log.debug("%s: %s", type(error).__name__, error.message)
        except Exception as error:  # noqa: BLE001 - memory is no reason to fail a chat
            self._leave_out(name, "internal error", repr(error))
        return or_else

    def skip(self, name: str, why: str, details: str = "", *, is_told: bool = True) -> None:
        """Record a stage that was left out.

        Args:
            name: Name of the stage.
            why: Reason, for the metrics and the client.
            details: Details for the log.
            is_told: Whether the client gets the reason.
        """
        self._leave_out(name, why, details)
        if not is_told:
            del self.left_out[name]

    @property
    def header(self) -> str:
        """Return the stages that were left out, as a header."""
        text = "; ".join(f"{name}: {why}" for name, why in self.left_out.items())
        return text.encode("ascii", "replace").decode()[:500]

    def _abandon(self, task: asyncio.Task[T], *, must_end: bool) -> None:
        if not must_end:
            task.cancel()
        self._background.watch(task)

    def _leave_out(self, name: str, why: str, details: str = "", *, label: str = "") -> None:
        self.left_out[name] = why
        self._metrics.memory_skipped.labels(name, label or why).inc()
        effect = _EFFECTS.get(name, f"chat forwarded without memory: {name}")
        _log.warning("%s: %s", effect, details or why)
