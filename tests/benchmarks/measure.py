"""Measuring, and what a measurement is."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.benchmarks.world import World

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Target:
    """What is to be reached: edenmem's figure, or its ratio to the baseline's."""

    of: Literal["figure", "ratio"]
    bound: float
    at_least: bool = False

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{self.of} {sign} {self.bound:,.4g}"

    def met_by(self, value: float) -> bool:
        """Whether ``value`` reaches it."""
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the table. ``agrees`` says whether both sides gave the right result."""

    subject: str
    unit: str
    figure: float
    baseline: str = ""
    baseline_figure: float | None = None
    target: Target | None = None
    agrees: bool = True

    @property
    def ratio(self) -> float | None:
        """edenmem's figure in baselines; None if the baseline has none, or nothing."""
        return self.figure / self.baseline_figure if self.baseline_figure else None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target."""
        if self.target is None:
            return None
        value = self.figure if self.target.of == "figure" else self.ratio
        return value is not None and self.target.met_by(value)


@dataclass
class Bench:
    """What every subject is given: where to work, how much data, how often to repeat."""

    folder: Path
    size: int
    effort: float = 1.0
    context_size: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.folder / "world", self.size)

    def times(self, full: int) -> int:
        """How often to repeat what is repeated ``full`` times in a whole run."""
        return max(1, round(full * self.effort))

    def note(self, text: str) -> None:
        """Say something below the table, once."""
        if text not in self.notes:
            self.notes.append(text)

    def python(self, *arguments: str | Path) -> str:
        """What a new Python process prints.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            check=True,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._environment(),
        )
        return done.stdout

    def script(self, name: str, *arguments: str | Path) -> str:
        """What a program of this package prints, without its folder in the way of imports."""
        return self.python("-P", _HERE / f"{name}.py", *arguments)

    def command(self, *arguments: str) -> str:
        """What ``edenmem …`` prints."""
        return self.python("-m", "edenmem", *arguments)

    def _environment(self) -> dict[str, str]:
        """The caller's, without settings of edenmem's, with a home folder of its own, and with
        compiled modules, as an installation has them: the round that does not count makes them."""
        foreign = ("EDENMEM_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        root = str(_HERE.parents[1])
        return kept | {
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "LANCE_LOG": "error",
            "PYTHONPATH": os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])]),
        }


def milliseconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1000


def interleaved(
    runs: Mapping[str, Callable[[], object]], repetitions: int, *, warm_up: int = 1
) -> dict[str, list[float]]:
    """The milliseconds of each, taking turns, after ``warm_up`` rounds that do not count.

    Every other round goes backwards, so that none always follows the same one.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for round_ in range(-warm_up, repetitions):
        for name in names if round_ % 2 else reversed(names):
            taken = milliseconds(runs[name])
            if round_ >= 0:
                found[name].append(taken)
    return found


def median(values: Sequence[float]) -> float:
    """The middle."""
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    """What 95 of 100 are not above."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(0.95 * len(ranked)) - 1)]
