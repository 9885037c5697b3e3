"""``migrate v1`` as a whole: time of each step, and most memory, with a second verification."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Bench, Row, Target
from tests.benchmarks.v1_dump import LONG_TEXTS, make_dump, make_long_dump

#: Documents of the plain dump beyond which a server made for tests takes an hour.
_SERVER_LIMIT = 210_000
#: MiB: for a dump of any number of documents, and for one of long texts.
_LIMIT, _LONG_LIMIT = 150, 250


def measure(bench: Bench) -> list[Row]:
    """Many documents, and long ones, into each kind of store; the server is another process."""
    rows = []
    for kind, store in (("sqlite", "SQLite"), ("mongodb", "SecantusDB")):
        size = bench.size if kind == "sqlite" else min(bench.size, _SERVER_LIMIT)
        long = bench.times(LONG_TEXTS)
        plain_dump, long_dump = bench.folder / f"v1-{size}", bench.folder / f"v1-long-{long}"
        if not plain_dump.exists():
            make_dump(plain_dump, size)
        if not long_dump.exists():
            make_long_dump(long_dump, long)
        rows += _rows(bench, kind, plain_dump, f"{size:,} documents into {store}", _LIMIT)
        rows += _rows(bench, kind, long_dump, f"{long} texts of 1 MB into {store}", _LONG_LIMIT)
    bench.note(
        "migrate-whole: most memory is the resident set of the migrating process, with its program"
        " and with mapped pages of the database; a server is not in it"
    )
    return rows


def _rows(bench: Bench, kind: str, dump: Path, what: str, limit: float) -> Iterator[Row]:
    target = bench.folder / "target"
    printed = bench.python("-m", "tests.benchmarks.migrating_process", kind, dump, target)
    shutil.rmtree(target, ignore_errors=True)
    found = json.loads(printed)
    agrees = found["complete"]
    for name in ("reading", "moving", "verifying"):
        rate = found["documents"] / found["seconds"][name]
        yield Row(f"migration of {what}, {name}", "documents/s", rate, agrees=agrees)
    most = max(found["resident"].values())
    target_of = Target("figure", limit)
    yield Row(f"migration of {what}, most memory", "MiB", most, target=target_of, agrees=agrees)
    details = ", ".join(f"{name} {figure:.0f}" for name, figure in found["resident"].items())
    bench.note(f"{what}: most memory in MiB after {details}; {_seconds(found)}")


def _seconds(found: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {seconds:.0f} s ({found['processor'][name]:.0f} s of the processor)"
        for name, seconds in found["seconds"].items()
    )
