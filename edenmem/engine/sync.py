"""`SyncMemoryService`: `MemoryService` for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from edenmem.engine.agent_memory import AgentMemory
from edenmem.engine.service import MemoryService
from edenmem.errors import UsageError

if TYPE_CHECKING:
    from edenmem.models.changes import Actor
    from edenmem.settings.schema import Settings

T = TypeVar("T")


class LoopThread:
    """Run coroutines of any thread in one event loop, which starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Ctrl-C cancels the coroutine.

        Raises:
            UsageError: the loop is closed.
        """
        with self._lock:
            if self.is_closed:
                work.close()
                raise UsageError("the service is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                forever = self._loop.run_forever
                self._thread = threading.Thread(target=forever, name="edenmem-loop", daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop. Closing twice is safe."""
        with self._lock:
            self.is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


P = ParamSpec("P")
Wrapped = TypeVar("Wrapped")
Wrapped_co = TypeVar("Wrapped_co", covariant=True)


class _Facade(Protocol[Wrapped_co]):
    _loop: LoopThread

    @property
    def _wrapped(self) -> Wrapped_co: ...


def _blocking(
    method: Callable[Concatenate[Wrapped, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Facade[Wrapped], P], T]:
    """Return a method that runs an asynchronous one, with the same parameters and docstring."""

    @wraps(method)
    def run(self: _Facade[Wrapped], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._wrapped, *args, **kwargs))

    return run


class SyncAgentMemory:
    """`AgentMemory` with blocking methods, from `SyncMemoryService.memory_for`.

    ``memory`` is the asynchronous object.
    """

    def __init__(self, memory: AgentMemory, loop: LoopThread) -> None:
        self.memory = self._wrapped = memory
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on ``memory`` in its event loop; see `SyncMemoryService.run`."""
        return self._loop.run(work)

    search = _blocking(AgentMemory.search)
    context = _blocking(AgentMemory.context)
    facts = _blocking(AgentMemory.facts)
    why = _blocking(AgentMemory.why)
    remember = _blocking(AgentMemory.remember)
    add_fact = _blocking(AgentMemory.add_fact)
    put_fact = _blocking(AgentMemory.put_fact)
    edit_fact = _blocking(AgentMemory.edit_fact)
    forget_fact = _blocking(AgentMemory.forget_fact)


class SyncMemoryService:
    """`MemoryService` with blocking methods, safe for any number of threads.

    ``service`` is the asynchronous service; its operator properties block anyway. It runs in an
    event loop on a separate thread, so that callers may have a running loop.
    """

    def __init__(self, service: MemoryService) -> None:
        self.service = self._wrapped = service
        self._loop = LoopThread()

    @classmethod
    def from_settings(cls, settings: Settings | None = None, *, actor: Actor | None = None) -> Self:
        """Return a service for the configured store and models.

        See `MemoryService.from_settings`.
        """
        return cls(MemoryService.from_settings(settings, actor=actor))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and the models. Closing twice is safe."""
        if not self._loop.is_closed:
            try:
                self._loop.run(self.service.close())
            finally:
                self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on ``service`` in its event loop, and return the result.

        Raises:
            UsageError: the service is closed.
        """
        return self._loop.run(work)

    initialize = _blocking(MemoryService.initialize)
    close_models = _blocking(MemoryService.close_models)
    assemble_context = _blocking(MemoryService.assemble_context)
    get_memory_context = _blocking(MemoryService.get_memory_context)
    ensure_agent = _blocking(MemoryService.ensure_agent)
    ensure_user = _blocking(MemoryService.ensure_user)
    ensure_session = _blocking(MemoryService.ensure_session)
    add_messages = _blocking(MemoryService.add_messages)
    retract_messages = _blocking(MemoryService.retract_messages)
    on_session_start = _blocking(MemoryService.on_session_start)
    on_session_end = _blocking(MemoryService.on_session_end)
    process_cold_session = _blocking(MemoryService.process_cold_session)
    maybe_form_memories = _blocking(MemoryService.maybe_form_memories)
    form_memories = _blocking(MemoryService.form_memories)
    remember = _blocking(MemoryService.remember)
    consolidate_session = _blocking(MemoryService.consolidate_session)
    consolidate = _blocking(MemoryService.consolidate)
    consolidate_all = _blocking(MemoryService.consolidate_all)
    search = _blocking(MemoryService.search)
    search_facts = _blocking(MemoryService.search_facts)
    all_about = _blocking(MemoryService.all_about)
    _memory_for = _blocking(MemoryService.memory_for)
    edit = _blocking(MemoryService.edit)
    review_items = _blocking(MemoryService.review_items)
    review_item = _blocking(MemoryService.review_item)
    accept_item = _blocking(MemoryService.accept_item)
    reject_item = _blocking(MemoryService.reject_item)

    def memory_for(
        self,
        agent: str,
        *,
        user: str | None = None,
        session: str | None = None,
        actor_name: str | None = None,
        own_only: bool = False,
    ) -> SyncAgentMemory:
        """Return the memory that an agent can use with a user or in a session.

        See `MemoryService.memory_for`.
        """
        memory = self._memory_for(
            agent, user=user, session=session, actor_name=actor_name, own_only=own_only
        )
        return SyncAgentMemory(memory, self._loop)
