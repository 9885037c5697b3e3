"""``python -m tests.benchmarks.growth [--sizes 1000,10000,100000] [--plot FILE] [--json FILE]
[--folder FOLDER]``: how time, recall and size on disk grow with the number of facts.

Sizes that the JSON file of an earlier run has are not measured again, so that sizes can be measured
one by one. With ``--folder`` the files stay, and an interrupted run or a larger size continues from
them. Facts are generated and stored in batches, so memory does not grow with their number; only
recall holds the vectors of one scope (8 % of the facts), once.

A million facts of 384 dimensions, as with the local models:
``BENCH_DIMENSIONS=384 python -m tests.benchmarks.growth --sizes 1000000 --folder /data/growth``
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tabulate import tabulate

from tests.benchmarks import disk, finding, machine, searching
from tests.benchmarks.measure import Bench, Row

#: Subjects in the order of the table, by the beginnings of their rows' names, with the unit.
_SUBJECTS = (
    ("hybrid search, warm", "ms p50"),
    ("hybrid search, warm", "ms p95"),
    ("hybrid search, new process", "ms"),
    ("recall@10", "share"),
    ("size on disk", "MiB"),
    ("memory of a search", "MiB"),
    ("hybrid search in 30 scopes", "ms p50"),
    ("hybrid search in 30 scopes", "ms p95"),
)
_LEFT_OUT = ("accesses counted", ": time")
_EDENMEM = "edenmem"

Figures = dict[str, dict[str, float]]  # "subject, unit" → who → figure


def measure(bench: Bench) -> Figures:
    """The figures of one size, of edenmem and of each baseline."""
    rows = [*searching.measure(bench), *finding.synthetic(bench), *disk.measure(bench)]
    rows += [*searching.memory(bench), *searching.wide(bench)]
    return figures(rows)


def figures(rows: Iterable[Row]) -> Figures:
    """The rows that grow with the data, by subject and unit."""
    found: Figures = {}
    for row in rows:
        for subject, unit in _SUBJECTS:
            wanted = row.subject.startswith(subject) and row.unit == unit
            if not wanted or any(words in row.subject for words in _LEFT_OUT):
                continue
            own = found.setdefault(f"{subject}, {unit}", {_EDENMEM: row.figure})
            if row.baseline_figure is not None:
                own[row.baseline] = row.baseline_figure
    return found


def table(sizes: dict[int, Figures]) -> str:
    """A Markdown table: a line for each subject and who did it, a column for each size."""
    lines = []
    for subject in next(iter(sizes.values())):
        people = dict.fromkeys(who for each in sizes.values() for who in each[subject])
        for who in people:
            cells = [each[subject].get(who) for each in sizes.values()]
            lines.append([subject, who, *("" if c is None else f"{c:,.4g}" for c in cells)])
    headers = ["", "", *(f"{size:,} facts" for size in sizes)]
    return tabulate(lines, headers, tablefmt="github", disable_numparse=True)


def plot(sizes: dict[int, Figures], path: Path) -> None:
    """Draw the time of a hybrid search against the number of facts, both axes logarithmic.

    The page behind it may be light or dark: everything is drawn in colors that show on both.
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    gray = "#808890"
    rcParams["svg.hashsalt"] = "edenmem"  # the same figures give the same file
    figure = Figure(figsize=(8.6, 4.4))
    axes = figure.add_subplot()
    subjects = (("hybrid search, warm, ms p50", "-"), ("hybrid search, new process, ms", "--"))
    people = dict.fromkeys(who for each in sizes.values() for who in each[subjects[0][0]])
    for color, who in zip(("#1f8a70", "#d9822b", "#5b7fd1"), people, strict=False):
        for subject, line in subjects:
            row = [each[subject].get(who) for each in sizes.values()]
            way = "new process" if line == "--" else "warm"
            axes.plot(list(sizes), row, line, color=color, marker="o", label=f"{who}, {way}")
    axes.set(xscale="log", yscale="log", ylabel="milliseconds")
    axes.set_xticks(list(sizes), [f"{size:,} facts" for size in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(colors=gray)
    axes.yaxis.label.set_color(gray)
    axes.grid(axis="y", color=gray, alpha=0.3)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.legend(frameon=False, labelcolor=gray, fontsize="small")
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of facts")
    parser.add_argument("--effort", type=float, default=1.0, help="share of the repetitions")
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    parser.add_argument("--json", type=Path, help="figures of this run and of earlier ones")
    parser.add_argument("--folder", type=Path, help="keep the files here, and continue from them")
    options = parser.parse_args(arguments)
    known: dict[str, Figures] = {}
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text())
    sizes = sorted(int(text) for text in options.sizes.split(","))
    for size in sizes:
        if str(size) in known:
            continue
        with tempfile.TemporaryDirectory(prefix="edenmem-growth-") as temporary:
            folder = options.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            known[str(size)] = measure(Bench(folder, size, effort=options.effort))
        sys.stderr.write(f"{size:,} facts are measured\n")
        if options.json:
            options.json.write_text(json.dumps(known, indent=1))
    chosen = {size: known[str(size)] for size in sizes}
    sys.stdout.write(table(chosen) + "\n\n")
    for line in machine.facts():
        sys.stdout.write(f"- {line}\n")
    if options.plot:
        plot(chosen, options.plot)


if __name__ == "__main__":
    main()
