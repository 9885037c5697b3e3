"""``python -m tests.engine.cold.growth FILE``: what a cold run keeps of each session.

Prints the number of objects of edenmem and of bytes for each session more, between those of four
looks at which they grew least: what comes once, such as a thread that starts or a table that grows,
is in one interval only. Caches with limits of their own are emptied before each look.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

from edenmem.engine.cold.report import ColdReport
from edenmem.engine.cold.runner import run_cold
from edenmem.engine.runtime import concurrency
from edenmem.engine.service import MemoryService
from edenmem.search import words
from edenmem.settings.schema import ColdSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import cold_world, data
from tests.support.runtime import ANYTHING_GOES, make_runtime

#: Few of each: by the first look every scope has memory.
_AGENTS, _USERS, _MESSAGES = 2, 2, 12
#: Sessions formed at each look.
_LOOKS = (16, 22, 28, 34)


def main(path: Path) -> tuple[float, float]:
    """Form the sessions; return objects and bytes for each."""
    data.AGENTS, data.USERS, cold_world.MESSAGES = _AGENTS, _USERS, _MESSAGES
    store = SqliteStore(path)
    store.database.initialize()
    cold_world.make(store, _LOOKS[-1])
    cold_world.warm_up()
    seen: dict[int, tuple[int, int]] = {}

    def look(report: ColdReport) -> None:
        formed = report.formed
        if formed in _LOOKS and formed not in seen:
            _empty_caches(store)
            gc.collect()
            modules = (str(type(each).__module__) for each in gc.get_objects())
            ours = sum(module.startswith("edenmem.") for module in modules)
            seen[formed] = (ours, tracemalloc.get_traced_memory()[0])

    settings = Settings(cold=ColdSettings(concurrency=1), formation=ANYTHING_GOES)
    runtime = make_runtime(
        store,
        settings,
        llm=cold_world.InstantLLM(),
        embedder=cold_world.InstantEmbedder(),
        actor=data.ACTOR,
        clock=data.clock,
    )
    # A thread that starts late, as on a slow machine, opens a connection of its own.
    concurrency.THREADS = concurrency.SEARCHES = 1
    tracemalloc.start()
    report = asyncio.run(run_cold(runtime, MemoryService.from_runtime, progress=look))
    tracemalloc.stop()
    store.database.close()
    assert (report.formed, report.failed) == (_LOOKS[-1], ())
    steps = [(after - before, before, after) for before, after in pairwise(_LOOKS)]
    objects, traced = (
        min((seen[after][each] - seen[before][each]) / count for count, before, after in steps)
        for each in (0, 1)
    )
    return objects, traced


def _empty_caches(store: SqliteStore) -> None:
    vars(store.search).pop("codes", None)  # it keeps the vectors of small scopes, too
    words._known = {}
    for each in gc.get_objects():
        is_cache = type(each) is functools._lru_cache_wrapper  # a proxy has the class of another
        if is_cache and each.__module__.startswith("edenmem."):
            each.cache_clear()


if __name__ == "__main__":
    print(*main(Path(sys.argv[1])))
