"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def facts() -> list[str]:
    """Processor, memory, and the versions of what matters; no names of hosts or people."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, {platform.system()}",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        + ", ".join(_versions(("edenmem", "numpy", "typer", "lancedb"))),
    ]


def load() -> float:
    """How many processes wanted a core in the last minute, on average."""
    return os.getloadavg()[0]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _versions(packages: tuple[str, ...]) -> list[str]:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return found
