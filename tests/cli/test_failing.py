"""What goes wrong outside: each is one clear message, the documented exit code, no traceback."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edenmem.cli.app import root as app
from edenmem.errors import (
    AmbiguousReference,
    BudgetExceeded,
    ConfigError,
    ConflictError,
    EdenmemError,
    EmbeddingModelMismatch,
    InputError,
    NotFoundError,
    ProviderAuthError,
    ScopeError,
    StoreError,
    UsageError,
)
from edenmem.llm import LLM_HINT
from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow


READING = ("scope", "list")
WRITING = ("fact", "add", "--agent", "mira", "--content", "x")


def assert_unavailable(cli: Cli, *commands: tuple[str, ...]) -> None:
    for command in commands:
        result = cli(*command, env={"EDENMEM_STORE_BUSY_TIMEOUT_SECONDS": "0.2"})
        assert result.code == 5, (command, result.err)
        assert result.out == ""
        assert result.err.startswith("edenmem: error: ")


def test_a_missing_file(empty_cli: Cli) -> None:
    assert_unavailable(empty_cli, READING, WRITING)
    assert "edenmem init" in empty_cli(*READING).err
    assert not empty_cli.file.exists()
    assert "init" in empty_cli("status").ok().err


@pytest.mark.parametrize(
    "command",
    [
        "forget --user nobody",
        "forget --user lena --agent nobody",
        "forget --agent nobody",
        "fact edit ffff0000 --content x",
        "delete ffff0000",
        "restore nobody/agent --version 1",
        "user merge nobody lena",
        "user merge lena nobody",
        "undo ffff0000",
        "undo --run ffff0000",
        "migrate rollback ffff0000",
        "token revoke nothing",
        "index drop nothing",
        "embed backfill --agent nobody",
    ],
)
def test_names_are_looked_up_before_a_confirmation(shared_cli: Cli, command: str) -> None:
    assert "--yes" not in shared_cli(*command.split()).fails(3).err


def test_a_file_of_something_else(cli: Cli, tmp_path: Path) -> None:
    cli.file.write_bytes(b"this is no database, and long enough to be looked at " * 50)
    assert_unavailable(cli, READING, WRITING, ("init", "--yes"))


def test_a_database_of_somebody_else(cli: Cli) -> None:
    cli.file.unlink()
    with sqlite3.connect(cli.file) as database:
        database.execute("CREATE TABLE songs (title)")
    database.close()
    assert_unavailable(cli, READING, WRITING, ("init", "--yes"))


def test_a_locked_file(cli: Cli) -> None:
    database = sqlite3.connect(cli.file, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        assert_unavailable(cli, WRITING)
        cli(*READING).ok()  # who reads does not wait for who writes
    finally:
        database.close()
    cli(*WRITING).ok()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written(cli: Cli) -> None:
    cli.file.chmod(0o400)
    assert_unavailable(cli, WRITING)


def test_a_folder_in_place_of_a_file(cli: Cli) -> None:
    cli.file.unlink()
    cli.file.mkdir()
    assert_unavailable(cli, READING)


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_mongodb_that_does_not_answer(silent: bool, cli: Cli) -> None:
    """A port that nobody listens on, and one that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if silent:
            listener.listen()
        uri = f"mongodb://user:secret@127.0.0.1:{listener.getsockname()[1]}/eden"
        result = cli("agent", "list", "--uri", uri, "--set", "store.connect_timeout_seconds=0.3")
    assert result.code == 5
    assert "secret" not in result.err
    assert "edenmem: error: " in result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EdenmemError("x"), 1),
        (UsageError("x"), 2),
        (ConfigError("x"), 2),
        (ScopeError("x"), 2),
        (InputError("x", line=3), 2),
        (AmbiguousReference("fact", "a", ["b", "c"]), 2),
        (NotFoundError("x"), 3),
        (ConflictError("x"), 4),
        (StoreError("x"), 5),
        (EmbeddingModelMismatch(stored="a", current="b"), 5),
        (ProviderAuthError("x"), 5),
        (BudgetExceeded("x"), 5),
        (KeyboardInterrupt(), 130),
        (OSError(28, "No space left on device", "/full\x1b[31m"), 5),
        (ValueError("[/red]\x1b[31m"), 1),
    ],
)
def test_exit_codes(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("edenmem.settings.load.load_settings", fail)
    assert app.run(["config", "show"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "edenmem: error: " in captured.err
    assert "Traceback" not in captured.err
    assert "\x1b" not in captured.err
    assert app.run(["config", "show", "--traceback"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_an_unforeseen_error_is_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edenmem.settings.load.load_settings", lambda **_: 1 / 0)
    assert app.run(["config", "show"]) == 1
    assert "this is a bug in edenmem" in capsys.readouterr().err


def test_too_little_memory_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """FAILURES 124: a limit of ``ulimit -v`` was called a bug."""
    for error in (
        MemoryError(),
        ImportError("numpy\nlibopenblas.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("edenmem.settings.load.load_settings", fail)
        assert app.run(["config", "show"]) == 5
        assert "error: not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["while it writes", "at its end"])
@pytest.mark.parametrize(
    "command",
    [("config", "show", "--format", "jsonl"), ("export", "-")],
    ids=lambda words: words[0],
)
def test_whoever_reads_may_leave(command: tuple[str, ...], unbuffered: str, cli: Cli) -> None:
    """``edenmem … | head -1`` is no error message and no traceback, whenever the reader leaves."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run_to(writing, *command, cli=cli, env={"PYTHONUNBUFFERED": unbuffered})
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 0


def run_to(
    stdout: int | None, *command: str, cli: Cli, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a process of its own with this as its stdout; None: closed, as by ``>&-``."""
    words = [sys.executable, "-m", "edenmem", *command]
    if stdout is None:
        words = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    return subprocess.run(
        words,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=cli.environment(80, env or {}),
        text=True,
        timeout=60,
        check=False,
    )


def test_a_change_whose_output_ends_early_says_so(cli: Cli) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run_to(writing, *WRITING, cli=cli, env={"PYTHONUNBUFFERED": "1"})
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert "closed before the command finished" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("fact", "list", "--agent", "mira"), ("--version",)])
def test_a_closed_stdout_is_an_error(command: tuple[str, ...], cli: Cli) -> None:
    done = run_to(None, *command, cli=cli)
    assert done.returncode == 2
    assert done.stderr.startswith("edenmem: error: standard output is closed\n  hint: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("unbuffered", ["1", ""], ids=["while it writes", "at its end"])
def test_a_full_disk_behind_stdout_is_named(unbuffered: str, cli: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        env = {"PYTHONUNBUFFERED": unbuffered}
        done = run_to(full.fileno(), "config", "show", cli=cli, env=env)
    assert done.returncode == 5
    assert done.stderr.startswith("edenmem: error: cannot write to standard output: the disk is")
    assert done.stderr.count("\n") == 2
    assert "  hint: " in done.stderr


def test_an_interruption_is_130(cli: Cli) -> None:
    """Ctrl-C while a session is being read from stdin."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edenmem", "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli.environment(80, {}),
        # A shell without job control has what it starts in the background ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for_read(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert err.decode().strip() == "edenmem: error: interrupted"


def wait_for_read(pid: int) -> None:
    """Until the process is blocked reading its stdin (as the kernel sees it)."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        place = Path(f"/proc/{pid}/wchan")
        if place.exists() and "pipe" in place.read_text():
            return
        time.sleep(0.02)
    pytest.skip("cannot see what the process waits for")


def test_a_terminal_without_unicode_gets_escapes(cli: Cli) -> None:
    streams = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "edenmem", "show", "mira"],
        capture_output=True,
        cwd=cli.cwd,
        env=cli.environment(80, streams),
        timeout=60,
        check=True,
    )
    assert b"\\u6f22\\u5b57" in done.stdout, "which a terminal with Unicode is shown as it is"
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    "command",
    [
        ("form", "first-visit"),
        ("remember", "The hall opens at 9.", "--agent", "mira"),
        ("consolidate", "--agent", "mira", "--force"),
    ],
)
def test_a_missing_language_model(cli: Cli, command: tuple[str, ...]) -> None:
    """One error and one hint, whatever needs the model."""
    result = cli(*command, columns=300)
    assert "no language model is configured" in result.err
    assert LLM_HINT in result.err
    assert "edenmem help models" in LLM_HINT


@pytest.mark.parametrize(
    "command",
    [
        ("import", "nope"),
        ("import", "nope", "--as", "notes"),
        ("eval", "nope"),
        ("remember", "--agent", "mira", "--file", "nope"),
        ("migrate", "v1", "--from", "nope"),
    ],
)
def test_a_missing_input_file(cli: Cli, command: tuple[str, ...]) -> None:
    result = cli(*command)
    assert (result.code, result.out) == (3, "")
    assert re.search("no such (file|folder|file or folder): .*nope", result.err)


def test_an_unreadable_input_file(cli: Cli, tmp_path: Path) -> None:
    cli("eval", str(tmp_path)).fails(2, "cannot read", "hint: check the path")


def test_a_missing_folder_of_the_store(cli: Cli, tmp_path: Path) -> None:
    """The same code as for a missing file."""
    cli.uri = f"sqlite:///{tmp_path}/none/memory.db"
    assert_unavailable(cli, READING, WRITING, ("status",))
