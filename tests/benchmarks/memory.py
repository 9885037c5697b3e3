"""How much memory this program has of its own."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def private() -> float:
    """MiB that nobody else can use.

    Pages of mapped files are left out where the kernel tells them apart: SQLite maps what it
    searches, and the system takes such pages back when it needs them. Elsewhere it is the most
    that the program ever had, with them.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
