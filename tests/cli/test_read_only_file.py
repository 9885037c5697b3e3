"""A database that this user may read and not write: a backup, a share, another account's."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli, Result

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


def obey_modes() -> None:
    """Let the process that is about to start have no more than what the modes of files allow."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


class Locked:
    """The prepared store in a folder of its own, with commands for which its modes hold."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self.folder = cli.cwd / "locked"
        self.folder.mkdir()
        self.file = self.folder / "memory.db"
        cli.file.rename(self.file)

    def close(self, folder: int, *, file: int = 0o444) -> None:
        """Set the modes of the folder and of all that is in it."""
        for path in self.folder.iterdir():
            path.chmod(file)
        self.folder.chmod(folder)

    def open(self) -> None:
        """Let everything be written again."""
        self.folder.chmod(0o755)
        for path in self.folder.iterdir():
            path.chmod(0o644)

    def __call__(self, *arguments: str) -> Result:
        environment = self._cli.environment(80, {"EDENMEM_URI": f"sqlite:///{self.file}"})
        try:
            done = subprocess.run(
                [sys.executable, "-m", "edenmem", *arguments],
                cwd=self._cli.cwd,
                env=environment,
                capture_output=True,
                text=True,
                preexec_fn=obey_modes,
                check=False,
            )
        except subprocess.SubprocessError:
            pytest.skip("this system does not let root give up its right to write everything")
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def locked(cli: Cli) -> Iterator[Locked]:
    store = Locked(cli)
    yield store
    store.open()


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o444), (0o555, 0o644)], ids=oct)
def test_it_is_read_and_nothing_is_left_beside_it(locked: Locked, folder: int, file: int) -> None:
    locked.close(folder, file=file)
    assert "mira" in locked("agent", "list").ok().out
    found = locked("search", "whale lanterns", "--agent", "mira", "--user", "lena").ok()
    assert "ninety whale lanterns" in found.out
    assert "accesses were not counted" in found.err
    assert "ninety whale lanterns" in locked("context", "first-visit").ok().out
    locked("fact", "add", "--agent", "mira", "--content", "x").fails(5, "cannot be written")
    assert [path.name for path in locked.folder.iterdir()] == ["memory.db"]


@pytest.mark.slow
def test_a_log_that_was_left_behind_is_not_passed_over(locked: Locked) -> None:
    writer = sqlite3.connect(locked.file)
    writer.execute("UPDATE agents SET username = username")
    writer.commit()
    log = locked.file.with_name("memory.db-wal")
    content = log.read_bytes()
    assert content
    writer.close()
    log.write_bytes(content)  # as after a crash
    locked.close(0o555)
    refused = locked("agent", "list")
    assert (refused.code, refused.out) == (5, "")
    assert "memory.db-wal, which cannot be read" in refused.err
    locked.open()
    assert "mira" in locked("agent", "list").ok().out


@pytest.mark.slow
def test_a_log_with_nothing_in_it_is_no_hindrance(locked: Locked) -> None:
    locked.file.with_name("memory.db-wal").touch()
    locked.close(0o555)
    assert "mira" in locked("agent", "list").ok().out
