"""What is measured, by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.benchmarks import (
    adding,
    cold,
    context,
    disk,
    finding,
    forming,
    importing,
    migrating,
    migrating_whole,
    proxying,
    searching,
    start_up,
)
from tests.benchmarks.measure import Bench, Row

#: Those that only read come before those that write.
SUBJECTS: dict[str, Callable[[Bench], Sequence[Row]]] = {
    "start-up": start_up.measure,
    "search": searching.measure,
    "recall": finding.measure,
    "disk": disk.measure,
    "context": context.measure,
    "add": adding.measure,
    "import": importing.measure,
    "formation": forming.measure,
    "cold": cold.measure,
    "proxy": proxying.measure,
    "migrate": migrating.measure,
    "migrate-whole": migrating_whole.measure,
}

#: Those that take minutes at full size: only when they are named.
ON_REQUEST = frozenset({"migrate", "migrate-whole"})
