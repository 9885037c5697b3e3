"""The tests. This is read before anything that they need."""

import os
import shutil
import sys
import tempfile

# Bytecode is kept whatever the shell says: without it every worker compiles all tests, and every
# process that a test starts compiles what it needs of edenmem.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files that no test needs once it is over lie in memory where there is enough: to wait for a disk
# took a third of the time.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 4_000_000_000:
    os.environ.setdefault("TMPDIR", "/dev/shm")
    tempfile.tempdir = None
