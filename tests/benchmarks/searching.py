"""Hybrid search, by a new process and warm, beside LanceDB and a plain script."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edenmem.engine.search.searcher import Searcher
from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import lancedb_table, plain
from tests.benchmarks.data import MODEL, Question, agent_id, questions, user_id, wide_scopes
from tests.benchmarks.measure import Bench, Row, Target, interleaved, median, p95
from tests.support.runtime import make_runtime

LANCE, PLAIN = "LanceDB", "FTS5 + 1-bit codes, plain script"
_MISSING = "LanceDB is not installed (extra `bench`), so it is left out"

#: The share of questions whose own fact must be among the ten results, whoever answers.
_FOUND = 0.8


def measure(bench: Bench) -> list[Row]:
    """All rows; the same questions to each."""
    asked = questions(max(5, bench.times(250)), bench.size)
    if bench.world.lance is None:
        bench.note(_MISSING)
    return [*_new_process(bench, asked[0]), *_warm(bench, asked)]


# -- a new process ---------------------------------------------------------------------------------


def _new_process(bench: Bench, asked: Question) -> list[Row]:
    world = bench.world
    query, counted, words = (bench.folder / f"{name}.json" for name in ("query", "track", "text"))
    _write(query, asked)
    _write(counted, asked, track=True)
    _write(words, asked, vector=False)
    runs: dict[str, Callable[[], str]] = {
        PLAIN: lambda: bench.script("plain", world.plain, query),
        "library": lambda: bench.script("library", world.edenmem, query),
        "counted": lambda: bench.script("library", world.edenmem, counted),
        "plain, words": lambda: bench.script("plain", world.plain, words),
        "command": lambda: bench.command(*_command(world.uri, asked)),
    }
    if world.lance is not None:
        table = world.lance
        runs[LANCE] = lambda: bench.script("lancedb_table", table, query)
    agrees = all(asked.answer in run() for run in runs.values())
    taken = {name: median(ms) for name, ms in interleaved(runs, bench.times(15)).items()}
    name = f"hybrid search, new process, {bench.size:,} facts"

    def row(subject: str, run: str, baseline: str, target: Target | None = None) -> Row:
        return Row(subject, "ms", taken[run], baseline, taken[baseline], target, agrees)

    rows = [row(name, "library", PLAIN), row(f"{name}, accesses counted", "counted", PLAIN)]
    if LANCE in taken:
        rows.insert(0, row(name, "library", LANCE, Target("ratio", 1 / 6)))
    rows.append(
        Row(
            f"edenmem search --recipe text, {bench.size:,} facts",
            "ms",
            taken["command"],
            "FTS5, plain script",
            taken["plain, words"],
            agrees=agrees,
        )
    )
    return rows


def memory(bench: Bench) -> list[Row]:
    """The private memory of a process after one search."""
    query = bench.folder / "query.json"
    _write(query, questions(1, bench.size)[0])
    own, plain_own = (
        float(bench.script(script, file, query, "memory"))
        for script, file in (("library", bench.world.edenmem), ("plain", bench.world.plain))
    )
    return [Row(f"memory of a search, {bench.size:,} facts", "MiB", own, PLAIN, plain_own)]


def _write(path: Path, asked: Question, *, vector: bool = True, track: bool = False) -> None:
    query = {
        "text": asked.text,
        "vector": asked.vector.hex() if vector else "",
        "model": MODEL,
        "scopes": [scope.key for scope in asked.scopes],
        "track": track,
    }
    path.write_text(json.dumps(query))


def _command(uri: str, asked: Question) -> Sequence[str]:
    who = ("--agent", agent_id(asked.agent), "--user", user_id(asked.user))
    how = ("--recipe", "text", "--no-track", "--format", "json", "--uri", uri)
    return "search", asked.text, *who, *how


# -- warm ------------------------------------------------------------------------------------------


def wide(bench: Bench) -> list[Row]:
    """A search in 30 scopes with half of all facts."""
    asked = questions(max(5, bench.times(100)), bench.size)
    taken, found = _ask(bench, asked, wide_scopes)
    return [
        Row(
            f"hybrid search in 30 scopes, warm, {bench.size // 2:,} facts of {bench.size:,}",
            unit,
            figure(taken["edenmem"]),
            PLAIN,
            figure(taken[PLAIN]),
            agrees=min(found.values()) >= _FOUND,
        )
        for unit, figure in (("ms p50", median), ("ms p95", p95))
    ]


def _warm(bench: Bench, asked: Sequence[Question]) -> list[Row]:
    taken, found = _ask(bench, asked, lambda question: question.scopes)
    rows = []
    for unit, figure, bound in (("ms p50", median, 15), ("ms p95", p95, 30)):
        for baseline in (LANCE, PLAIN):
            if baseline in taken:
                rows.append(
                    Row(
                        f"hybrid search, warm, {bench.size:,} facts",
                        unit,
                        figure(taken["edenmem"]),
                        baseline,
                        figure(taken[baseline]),
                        Target("figure", bound),
                        agrees=min(found.values()) >= _FOUND,
                    )
                )
        rows.append(
            Row(
                f"hybrid search, warm, {bench.size:,} facts, accesses counted",
                unit,
                figure(taken["counted"]),
                PLAIN,
                figure(taken[PLAIN]),
                agrees=found["counted"] >= _FOUND,
            )
        )
    return rows


def _ask(
    bench: Bench, asked: Sequence[Question], scopes_of: Callable[[Question], Sequence[Scope]]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """The milliseconds of each question and way, and the share of questions that found theirs."""
    store = SqliteStore(bench.world.edenmem)
    searcher = Searcher(make_runtime(store))
    by_hand = plain.Searcher(bench.world.plain)
    with asyncio.Runner() as runner:

        async def answers(question: Question, *, track: bool) -> list[str]:
            report = await searcher.search(
                [question.text],
                scopes_of(question),
                recipe="convex",
                vectors=[question.vector],
                vector_model=MODEL,
                track=track,
            )
            return [hit.fact.id for hit in report.hits]

        def edenmem(question: Question, *, track: bool) -> list[str]:
            # A `Runner` writes out the task's result as it puts the signal handler back. Reports
            # are large, and no program that searches has a `Runner` for each search.
            return runner.run(answers(question, track=track))

        def keys(question: Question) -> list[str]:
            return [scope.key for scope in scopes_of(question)]

        ways: dict[str, Callable[[Question], list[str]]] = {
            PLAIN: lambda q: by_hand.search(q.text, q.vector, keys(q)),
            "edenmem": lambda q: edenmem(q, track=False),
        }
        if bench.world.lance is not None:
            table = lancedb_table.Searcher(bench.world.lance)
            ways[LANCE] = lambda q: table.search(q.text, q.vector, keys(q))
        # No question is asked twice, because edenmem keeps what it looked up for the last ones.
        fifth = max(1, len(asked) // 5)
        _ask_all(ways, asked[:fifth])  # what serves any question is in memory then
        taken, found = _ask_all(ways, asked[fifth:-fifth])
        counted, others = _ask_all({"counted": lambda q: edenmem(q, track=True)}, asked[-fifth:])
    store.database.close()
    return taken | counted, found | others


def _ask_all(
    ways: dict[str, Callable[[Question], list[str]]], asked: Sequence[Question]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """The milliseconds of each question and way, and the share of questions that found theirs."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    hits = dict.fromkeys(ways, 0)
    for number, question in enumerate(asked):
        for name in ways if number % 2 else reversed(ways):
            begin = time.perf_counter()
            ids = ways[name](question)
            taken[name].append((time.perf_counter() - begin) * 1000)
            hits[name] += question.answer in ids
    return taken, {name: count / len(asked) for name, count in hits.items()}
