"""The memory of a cold run does not grow with the number of sessions."""

from __future__ import annotations

import functools
import gc
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from edenmem.engine.cold.report import Tally
from edenmem.engine.cold.runner import ColdRunner
from edenmem.engine.service import MemoryService
from edenmem.search import words
from edenmem.settings.schema import ColdSettings, Settings
from tests.benchmarks import cold_world, data
from tests.support.runtime import ANYTHING_GOES, make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


#: Few of each: by the first look every scope is in the cache of search, which has a limit of its
#: own.
_AGENTS, _USERS, _MESSAGES = 2, 2, 12
#: Sessions formed at each look.
_LOOKS = (30, 40, 50, 60)
#: Bytes for each session: less than one prompt, or its messages. Four more facts in the cache of
#: search are much less.
_BYTES = 2_000


def empty_caches() -> None:
    """Empty the caches of texts: each has a limit of its own, which no run here reaches."""
    words._known = {}
    for each in gc.get_objects():
        is_cache = type(each) is functools._lru_cache_wrapper  # a proxy has the class of another
        if is_cache and each.__module__.startswith("edenmem."):
            each.cache_clear()


async def test_memory_does_not_grow_with_the_number_of_sessions(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "AGENTS", _AGENTS)
    monkeypatch.setattr(data, "USERS", _USERS)
    monkeypatch.setattr(cold_world, "MESSAGES", _MESSAGES)
    cold_world.make(sqlite_store, _LOOKS[-1])
    cold_world.warm_up()
    seen: dict[int, tuple[int, int]] = {}

    def look(tally: Tally) -> None:
        formed = tally["formed"]
        if formed in _LOOKS and formed not in seen:
            empty_caches()
            gc.collect()
            modules = (str(type(each).__module__) for each in gc.get_objects())
            ours = sum(module.startswith("edenmem.") for module in modules)
            seen[formed] = (ours, tracemalloc.get_traced_memory()[0])

    runner = ColdRunner(
        make_runtime(
            sqlite_store,
            Settings(cold=ColdSettings(concurrency=1), formation=ANYTHING_GOES),
            llm=cold_world.InstantLLM(),
            embedder=cold_world.InstantEmbedder(),
            actor=data.ACTOR,
            clock=data.clock,
        ),
        MemoryService.from_runtime,
        progress=look,
    )
    tracemalloc.start()
    try:
        report = await runner.run()
    finally:
        tracemalloc.stop()
    assert (report.formed, report.failed) == (_LOOKS[-1], ())
    # What is kept of each session adds up between any two looks. What comes once, such as a thread
    # that starts or a table that grows, is in one of them only.
    steps = [(after - before, before, after) for before, after in pairwise(_LOOKS)]
    objects, traced = (
        min((seen[after][each] - seen[before][each]) / count for count, before, after in steps)
        for each in (0, 1)
    )
    assert objects < 1
    assert traced < _BYTES
