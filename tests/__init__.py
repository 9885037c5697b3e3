"""The tests. This module is imported before their dependencies."""

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

# Write bytecode for any setting of the shell: otherwise every worker compiles all tests, and every
# process of a test compiles edenmem.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Processes of tests inherit it: shells ignore the signal in their background jobs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Memory that must be free to keep temporary files in it: three workers take 3 GB in all.
_ENOUGH = 6_000_000_000
_MEMORY = Path("/dev/shm")
_PREFIX = "edenmem-run-"


def _free_memory() -> int:
    """Return the memory in bytes that programs can still take, as Linux estimates it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line), 0)


def _is_running(folder: Path) -> bool:
    """Tell whether the run that made the folder still goes on."""
    return Path("/proc", folder.name.removeprefix(_PREFIX)).exists()


# Keep temporary files in memory if possible: waiting for the disk took a third of the time. They
# go with the run; a killed run leaves them to the next one.
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK):
    for left in _MEMORY.glob(f"{_PREFIX}*"):
        if not _is_running(left):
            shutil.rmtree(left, ignore_errors=True)
    if min(_free_memory(), shutil.disk_usage(_MEMORY).free) > _ENOUGH:
        folder = _MEMORY / f"{_PREFIX}{os.getpid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None
