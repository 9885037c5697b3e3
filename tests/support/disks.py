"""A small disk: a file system in memory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """Mount a folder of a size in KiB, or skip the test if mounting is not possible."""
    mount = shutil.which("mount")
    folder.mkdir()
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if not made or made.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
