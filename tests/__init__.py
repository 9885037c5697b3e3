"""The tests. This module is imported before their dependencies."""

import os
import shutil
import sys
import tempfile

# Write bytecode for any setting of the shell: otherwise every worker compiles all tests, and every
# process of a test compiles edenmem.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Keep temporary files in memory if possible: waiting for the disk took a third of the time.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 4_000_000_000:
    os.environ.setdefault("TMPDIR", "/dev/shm")
    tempfile.tempdir = None
