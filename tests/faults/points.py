"""The places at which something can go wrong, and what goes wrong there.

A `Switchboard` sees every store operation and every call of a provider. It counts them, and at
one place, once, it lets happen what it was told to.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from edenmem.errors import ProviderAnswerInvalid, ProviderTimeout, StoreError
from tests.support.interposed import InterposedStore

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder, Embedding, Role
    from edenmem.llm.protocol import LLM, AnswerT, LLMAnswer, LLMRequest

#: What a killed child exits with.
KILLED = 77


class Mode(StrEnum):
    """What may happen at a place."""

    RAISE_BEFORE = "raise before"
    RAISE_AFTER = "raise after"  # it was done, and the answer was lost
    HANG = "hang"  # the time limit strikes while it is under way; then it is done after all
    HANG_AND_RAISE = "hang and raise"  # the same, and it was not done
    KILL_BEFORE = "kill before"
    KILL_AFTER = "kill after"


#: The store's operations that change something.
_WRITES = frozenset(
    {
        "add_agent",
        "add_messages",
        "add_user",
        "apply",
        "apply_formation",
        "cache_context",
        "claim",
        "claimed",
        "failed",
        "put_session",
        "recorded",
        "released",
        "set_vectors",
        "track_access",
    }
)

KILLS = (Mode.KILL_BEFORE, Mode.KILL_AFTER)


class Place(NamedTuple):
    """The ``nth`` call (from 1) of an operation, told apart by name so that calls that run at the
    same time may be counted in any order."""

    operation: str
    nth: int

    @property
    def does(self) -> bool:
        """Whether the call writes, or costs money; others may fail as often as they like."""
        return self.operation in _WRITES or self.operation.partition(" ")[0] in ("ask", "embed")


class Fault(NamedTuple):
    """What happens where."""

    place: Place
    mode: Mode

    def __str__(self) -> str:
        return f"{self.mode} {self.place.operation} #{self.place.nth}"


class Switchboard:
    """Counts calls, and breaks some of them, each once."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.struck = False
        self._faults = {fault.place: fault.mode for fault in faults}
        self._lock = threading.Lock()
        self._stop: Callable[[], None] = lambda: None

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Which task a time limit cancels."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            cancelled = threading.Event()

            def cancel() -> None:
                task.cancel()
                cancelled.set()

            loop.call_soon_threadsafe(cancel)
            cancelled.wait()

        self._stop = stop

    @property
    def spared(self) -> list[Fault]:
        """The faults whose places were never reached."""
        return [Fault(*item) for item in self._faults.items()]

    @property
    def places(self) -> list[Place]:
        """All places that were passed."""
        return [
            Place(operation, nth + 1)
            for operation, count in self.counts.items()
            for nth in range(count)
        ]

    def enter(self, operation: str) -> Mode | None:
        """Count a call; what is to happen to it."""
        with self._lock:
            self.counts[operation] += 1
            here = Place(operation, self.counts[operation])
            mode = self._faults.pop(here, None)
            self.struck = self.struck or mode is not None
        if mode is Mode.KILL_BEFORE:
            os._exit(KILLED)
        return mode

    def call(self, operation: str, work: Callable[[], Any], error: Callable[[], Exception]) -> Any:
        """A blocking call."""
        mode = self.enter(operation)
        if mode in (Mode.HANG, Mode.HANG_AND_RAISE):
            self._stop()
        if mode in (Mode.RAISE_BEFORE, Mode.HANG_AND_RAISE):
            raise error()
        answer = work()
        if mode is Mode.RAISE_AFTER:
            raise error()
        if mode is Mode.KILL_AFTER:
            os._exit(KILLED)
        return answer


class FaultyStore(InterposedStore):
    """A store whose every operation passes the switchboard; a list that is read is read whole."""

    def __init__(self, store: Any, board: Switchboard) -> None:
        super().__init__(store)
        self._board = board

    def wrap(self, name: str, method: Any) -> Any:
        if name == "close":
            return method

        def operation(*args: Any, **options: Any) -> Any:
            def work() -> Any:
                answer = method(*args, **options)
                return iter(list(answer)) if isinstance(answer, Iterator) else answer

            called = str(args[1].status) if name == "move" else name
            return self._board.call(called, work, lambda: StoreError(f"broken: {called}"))

        return operation


class _FaultyProvider:
    def __init__(self, provider: Any, board: Switchboard) -> None:
        self._provider = provider
        self._board = board

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def _call(self, operation: str, work: Any) -> Any:
        mode = self._board.enter(operation)
        if mode is Mode.RAISE_BEFORE:
            work.close()
            raise ProviderTimeout(f"broken: {operation}")
        if mode in (Mode.HANG, Mode.HANG_AND_RAISE):
            work.close()
            await self._hang()
        answer = await work
        if mode is Mode.RAISE_AFTER:
            raise ProviderAnswerInvalid(f"nonsense: {operation}")  # counts as a failed try
        if mode is Mode.KILL_AFTER:
            os._exit(KILLED)
        return answer

    async def _hang(self) -> None:
        # The time limit is another's; here it strikes when all that can run has run.
        await asyncio.to_thread(self._board._stop)
        await asyncio.Event().wait()


class FaultyLLM(_FaultyProvider):
    """A language model behind the switchboard."""

    def __init__(self, llm: LLM, board: Switchboard) -> None:
        super().__init__(llm, board)

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        answer: LLMAnswer[AnswerT] = await self._call(
            f"ask {request.task}", self._provider.ask(request)
        )
        return answer


class FaultyEmbedder(_FaultyProvider):
    """An embedder behind the switchboard."""

    def __init__(self, embedder: Embedder, board: Switchboard) -> None:
        super().__init__(embedder, board)

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
        answer: Embedding = await self._call("embed", self._provider.embed(texts, role=role))
        return answer
