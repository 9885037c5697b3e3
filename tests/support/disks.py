"""A disk that is soon full: a small file system in memory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A folder with room for so many KiB; the test is skipped where none can be mounted."""
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
