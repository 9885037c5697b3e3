"""Bulk import of facts with their vectors: how many a second, and how much memory."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edenmem.models.memory import Fact
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import data, plain
from tests.benchmarks.measure import Bench, Row, Target, median
from tests.benchmarks.world import BATCH, adding, plain_row

_PLAIN = "same rows by sqlite3 executemany"


def measure(bench: Bench) -> list[Row]:
    """A tenth and a half of the facts, each in a process of its own; only the writing is timed."""
    few, many = max(BATCH, bench.size // 10), max(2 * BATCH, bench.size // 2)
    rates: dict[str, list[float]] = {"edenmem": [], "plain": []}
    memory: dict[tuple[str, int], float] = {}
    agrees = True
    for _ in range(bench.times(3)):
        for way, measured in rates.items():
            for count in (few, many):
                file = bench.folder / f"import-{way}.db"
                printed = bench.python("-m", "tests.benchmarks.importing", way, file, str(count))
                result = json.loads(printed)
                agrees = agrees and result["stored"] == count
                memory[way, count] = result["mebibytes"]
                if count == many:
                    measured.append(result["rate"])
                shutil.rmtree(file, ignore_errors=True)
                for leftover in bench.folder.glob(f"{file.name}*"):
                    leftover.unlink()
    growth = {way: max(0.0, memory[way, many] - memory[way, few]) for way in rates}
    return [
        Row(
            f"import of {many:,} facts with vectors",
            "facts/s",
            median(rates["edenmem"]),
            _PLAIN,
            median(rates["plain"]),
            Target("figure", 3000, at_least=True),
            agrees,
        ),
        Row(
            f"memory that {many:,} facts take beyond {few:,}",
            "MiB",
            growth["edenmem"],
            _PLAIN,
            growth["plain"],
            Target("figure", 16),
            agrees,
        ),
    ]


def main() -> None:
    """In the child: import, and print the rate and the most memory it ever had."""
    way, file, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    write, stored, close = _edenmem(file) if way == "edenmem" else _by_hand(file)
    seconds = 0.0
    for batch in batched(data.facts(count), BATCH):
        begin = time.perf_counter()
        write(batch)
        seconds += time.perf_counter() - begin
    result = {
        "rate": count / seconds,
        "stored": stored(),
        "mebibytes": _most_memory(),
    }
    close()
    sys.stdout.write(json.dumps(result))


def _most_memory() -> float:
    """The most memory that this program had, in MiB. Linux counts into ``ru_maxrss`` also what
    the parent had when it started the child, so there the kernel's own account is read."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


Writer = tuple[Callable[[Sequence[Fact]], object], Callable[[], int], Callable[[], None]]


def _edenmem(file: Path) -> Writer:
    store = SqliteStore(file)
    store.database.initialize()
    return (
        lambda facts: store.changes.apply(adding(facts)),
        lambda: store.database.info().counts["facts"],
        store.database.close,
    )


def _by_hand(file: Path) -> Writer:
    connection = plain.create(file)
    return (
        lambda facts: plain.add(connection, [plain_row(fact) for fact in facts]),
        lambda: connection.execute("SELECT count(*) FROM facts").fetchone()[0],
        connection.close,
    )


if __name__ == "__main__":
    main()
