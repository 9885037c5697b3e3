"""A cold run over many sessions: how many a second, the engine's own time, and its memory.

Providers answer at once. A run is a process of its own (``python -m tests.benchmarks.cold ROLE
STORE PLACE SESSIONS``), whose processor time is the engine's and, with SQLite, the store's; a
server has its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from edenmem.engine.cold.report import ColdReport
from edenmem.engine.cold.runner import run_cold
from edenmem.engine.factory import open_store
from edenmem.engine.service import MemoryService
from edenmem.settings.schema import Settings, StoreSettings
from tests.benchmarks import cold_plain, cold_world, data, memory
from tests.benchmarks.measure import Bench, Row, Target
from tests.support.runtime import make_runtime

_PLAIN = {"SQLite": "same rows by sqlite3", "SecantusDB": "same documents by pymongo"}
#: How much of the run is behind when memory is looked at.
_MARKS = (25, 50, 100)
#: The server is many times as slow as the file, whoever asks it.
_SERVER_SHARE = 10
#: MiB that the second half of a run may take beyond the first, as in an import.
_FLAT = Target("figure", 16)


class _Run(NamedTuple):
    """What a child found. ``memory`` is the most so far, MiB, at each of `_MARKS`."""

    seconds: float
    processor: float
    memory: tuple[float, ...]
    agrees: bool


def measure(bench: Bench) -> list[Row]:
    """As many messages as the benchmark's size, in sessions of fifty; fewer on the server."""
    sessions = max(4, bench.size // cold_world.MESSAGES)
    rows = _compare(bench, "SQLite", str(bench.folder), sessions)
    if find_spec("secantus") is None:
        bench.note("SecantusDB is not installed: no cold run on a server")
        return rows
    from tests.support.mongo_server import secantus_server

    fewer = max(4, sessions // _SERVER_SHARE)
    with ExitStack() as stack:
        server = stack.enter_context(secantus_server())
        return rows + _compare(bench, "SecantusDB", server.uri, fewer)


def _compare(bench: Bench, store: str, place: str, sessions: int) -> list[Row]:
    ours, theirs = (_run(bench, role, store, place, sessions) for role in ("edenmem", "plain"))
    name, agrees = _PLAIN[store], ours.agrees and theirs.agrees
    messages = sessions * cold_world.MESSAGES
    subject = f"cold run, {sessions:,} sessions, {messages:,} messages, {store}"
    found = [
        Row(subject, "sessions/s", sessions / ours.seconds, name, sessions / theirs.seconds),
        Row(
            f"{subject}: processor time for each",
            "ms",
            ours.processor / sessions * 1000,
            name,
            theirs.processor / sessions * 1000,
        ),
    ]
    for mark, mine, other in zip(_MARKS, ours.memory, theirs.memory, strict=True):
        found.append(Row(f"{subject}: most memory at {mark} %", "MiB", mine, name, other))
    growth, other = (each.memory[-1] - each.memory[-2] for each in (ours, theirs))
    found.append(Row(f"{subject}: more in its second half", "MiB", growth, name, other, _FLAT))
    return [Row(**{**vars(row), "agrees": agrees}) for row in found]


def _run(bench: Bench, role: str, store: str, place: str, sessions: int) -> _Run:
    """Make the sessions in one process, and work through them in another."""
    arguments = ("-m", "tests.benchmarks.cold", role, store, place, str(sessions))
    bench.python(*arguments, "make")
    return _Run(**json.loads(bench.python(*arguments, "run")))


# -- in the child --------------------------------------------------------------------------------


class _Watch:
    """The most memory so far, at each mark; looked at after each session."""

    def __init__(self, sessions: int) -> None:
        self.found: list[float] = []
        self._most = 0.0
        self._marks = [sessions * mark // 100 for mark in _MARKS]

    def __call__(self, done: int) -> None:
        self._most = max(self._most, memory.private())
        while len(self.found) < len(_MARKS) and done >= self._marks[len(self.found)]:
            self.found.append(self._most)


def main() -> None:
    """Make sessions, or work through them and print a `_Run`."""
    role, store, place, count, step = sys.argv[1:]
    sessions = int(count)
    work = {"edenmem": _edenmem, "plain": _by_hand}[role](store, place, sessions, step)
    if step == "make":
        work(lambda done: None)
        return
    cold_world.warm_up()
    watch = _Watch(sessions)
    began, used = time.perf_counter(), time.process_time()
    agrees = work(watch)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    run = _Run(seconds, processor, tuple(watch.found), agrees)
    sys.stdout.write(json.dumps(run._asdict()))


#: Does the work, tells how many sessions are done, and says whether all came out right.
_Work = Callable[[Callable[[int], None]], bool]


def _edenmem(store: str, place: str, sessions: int, step: str) -> _Work:
    uri = place if store != "SQLite" else f"sqlite:///{Path(place) / 'cold.db'}"
    opened = open_store(Settings(store=StoreSettings(uri=uri, database="cold")))

    def make(watch: Callable[[int], None]) -> bool:
        opened.database.initialize()
        cold_world.make(opened, sessions)
        opened.database.close()
        return True

    def run(watch: Callable[[int], None]) -> bool:
        runtime = make_runtime(
            opened,
            Settings(),  # with the rules of acceptance
            llm=cold_world.InstantLLM(),
            embedder=cold_world.InstantEmbedder(),
            actor=data.ACTOR,
            clock=data.clock,
        )
        work = run_cold(
            runtime, MemoryService.from_runtime, progress=lambda report: watch(report.formed)
        )
        report = asyncio.run(work)
        stored = opened.database.info().counts["facts"]
        opened.database.close()
        return _is_whole(report, sessions) and stored == sessions * cold_world.FACTS

    return make if step == "make" else run


def _is_whole(report: ColdReport, sessions: int) -> bool:
    return (
        report.formed == sessions
        and report.messages == sessions * cold_world.MESSAGES
        and not report.failed
        and report.stopped_early is None
    )


def _by_hand(store: str, place: str, sessions: int, step: str) -> _Work:
    rows: cold_plain.SqliteRows | cold_plain.MongoRows
    if store == "SQLite":
        rows = cold_plain.SqliteRows(Path(place) / "cold-plain.db")
    else:
        rows = cold_plain.MongoRows(place)

    def make(watch: Callable[[int], None]) -> bool:
        rows.make(sessions)
        rows.close()
        return True

    def run(watch: Callable[[int], None]) -> bool:
        cold_plain.form_all(rows, sessions, watch)
        stored = rows.facts()
        rows.close()
        return stored == sessions * cold_world.FACTS

    return make if step == "make" else run


if __name__ == "__main__":
    main()
