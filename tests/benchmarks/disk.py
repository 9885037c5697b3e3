"""Size on disk: everything, beside the vectors alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.benchmarks.data import DIMENSIONS
from tests.benchmarks.measure import Bench, Row, Target

_MIB = 2**20


def measure(bench: Bench) -> list[Row]:
    """The file with all its indexes, texts, audit and history."""
    world = bench.world
    raw = bench.size * DIMENSIONS * 4 / _MIB
    subject = f"size on disk, {bench.size:,} facts"
    size = _size(world.edenmem)
    rows = [
        Row(subject, "MiB", size, "raw float32 vectors", raw, Target("ratio", 1.4)),
        Row(subject, "MiB", size, "FTS5 + 1-bit codes, plain script", _size(world.plain)),
    ]
    if world.lance is not None:
        rows.append(Row(subject, "MiB", size, "LanceDB", _size(world.lance)))
    return rows


def _size(path: Path) -> float:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / _MIB
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what other subjects wrote counts too
    connection.close()
    return path.stat().st_size / _MIB
