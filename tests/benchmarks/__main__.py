"""``python -m tests.benchmarks [NAME…] [--size N] [--context-size N] [--markdown]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks import machine
from tests.benchmarks.measure import Bench, Row
from tests.benchmarks.subjects import ON_REQUEST, SUBJECTS
from tests.benchmarks.table import render


def main() -> None:
    """Measure and print; progress goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--size", type=int, default=100_000, help="facts (default 100,000)")
    parser.add_argument(
        "--context-size",
        type=int,
        default=0,
        help="also contexts over so many facts without vectors, such as 1000000",
    )
    parser.add_argument(
        "--effort", type=float, default=1.0, help="repetitions, as a share of the usual number"
    )
    parser.add_argument("--markdown", action="store_true", help="a table in Markdown")
    parser.add_argument("--folder", type=Path, help="where to put the files (default: temporary)")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(SUBJECTS))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    before = machine.load()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="edenmem-bench-") as folder:
        bench = Bench(
            Path(folder),
            options.size,
            effort=options.effort,
            context_size=options.context_size,
        )
        rows: list[Row] = []
        for name in SUBJECTS:
            if name in (options.names or SUBJECTS.keys() - ON_REQUEST):
                begin = time.perf_counter()
                try:
                    rows += SUBJECTS[name](bench)
                except KeyboardInterrupt:
                    bench.note(f"interrupted in {name}: the table ends before it")
                    break
                sys.stderr.write(f"{name}: {time.perf_counter() - begin:.0f} s\n")
        sys.stdout.write(render(rows, markdown=options.markdown) + "\n\n")
    load = f"load average {before:.1f} at the beginning, {machine.load():.1f} at the end"
    for line in (*machine.facts(), load, *bench.notes):
        sys.stdout.write(f"- {line}\n")


if __name__ == "__main__":
    main()
