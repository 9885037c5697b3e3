"""``-o FILE``: the result in a file that is whole or not there."""

from __future__ import annotations

import gzip
import json
import os
import stat
import threading

import pytest

from edenmem import __version__
from tests.cli.conftest import Cli
from tests.support.disks import small_disk

LIST = ("fact", "list", "--agent", "mira")


def test_the_file_holds_what_stdout_would(shared_cli: Cli) -> None:
    folder = shared_cli.cwd
    listed = {"json": LIST, "csv": LIST, "table": ("config", "show")}  # tables have ages
    for format, words in listed.items():
        command = (*words, "--format", format)
        written = shared_cli(*command, "-o", f"facts.{format}").ok()
        assert (written.out, written.err) == ("", "")
        assert (folder / f"facts.{format}").read_text() == shared_cli(*command).ok().out
    assert stat.S_IMODE((folder / "facts.json").stat().st_mode) == 0o600
    shared_cli(*LIST, "--json", "--output", "facts.json.gz").ok()
    assert json.loads(gzip.decompress((folder / "facts.json.gz").read_bytes()))
    shared_cli("--output", "before.json", *LIST, "--json").ok()
    assert (folder / "before.json").read_text() == (folder / "facts.json").read_text()


def test_a_file_that_exists_is_overwritten_only_with_force(cli: Cli) -> None:
    file = cli.cwd / "facts.json"
    file.write_text("mine")
    refused = cli(*LIST, "-o", file.name)
    assert (refused.code, file.read_text()) == (4, "mine")
    assert "add --force" in refused.err
    cli(*LIST, "-o", file.name, "--force", "--json").ok()
    assert json.loads(file.read_text())
    entry = cli.json("log", "--limit", "1")[0]["id"]
    other = cli("undo", entry, "--yes", "--force", "-o", file.name)  # --force is about the undo
    assert (other.code, "take another name" in other.err) == (4, True)
    assert cli.json("log", "--limit", "1")[0]["id"] == entry


def test_a_command_that_fails_leaves_no_file(shared_cli: Cli) -> None:
    before = sorted(shared_cli.cwd.iterdir())
    assert shared_cli("show", "0" * 24, "-o", "fact.txt").code == 3
    assert shared_cli(*LIST, "-o", "no/such/folder.txt").code == 2
    assert sorted(shared_cli.cwd.iterdir()) == before


def test_a_report_of_failures_is_a_result(cli: Cli) -> None:
    command = ("import", "-", "--skip-bad", "--dry-run", "--json", "-o", "report.json")
    result = cli(*command, input='{"type": "nonsense"}\n')
    assert (result.code, result.out) == (1, "")
    (report,) = json.loads((cli.cwd / "report.json").read_text())
    assert report["dry_run"] is True


def test_an_export_takes_its_file_either_way(shared_cli: Cli) -> None:
    shared_cli("export", "-o", "one.jsonl").ok()
    shared_cli("export", "two.jsonl").ok()
    one, two = ((shared_cli.cwd / name).read_text() for name in ("one.jsonl", "two.jsonl"))
    assert one.splitlines()[1:] == two.splitlines()[1:]
    assert shared_cli("export", "two.jsonl", "-o", "one.jsonl").code == 2


@pytest.mark.parametrize("command", [("cold", "run", "--watch"), ("mcp",), ("serve",)])
def test_what_does_not_end_writes_no_file(command: tuple[str, ...], shared_cli: Cli) -> None:
    shared_cli(*command, "-o", "x").fails(2, "-o does not apply")


@pytest.mark.slow
def test_files_in_use_are_never_overwritten(cli: Cli) -> None:
    store = cli.cwd / "memory.db"
    config = cli.cwd / "edenmem.toml"
    config.write_text("[search]\ntop_k = 5\n")
    (cli.cwd / "memory.db-wal").touch()
    (cli.cwd / "link.db").symlink_to(store)
    (cli.cwd / "hard.db").hardlink_to(store)
    before = store.read_bytes()
    for name in ("memory.db", "link.db", "hard.db", "memory.db-wal", "memory.db-shm", config.name):
        for command in (
            ("--force", "fact", "list", "-o", name),
            ("export", "-o", name, "--force"),
            ("export", name, "--force"),
            ("--force", "--version", "-o", name),
            ("forget", "--user", "lena", "--receipt", name, "--yes", "--force"),
        ):
            refused = cli(*command)
            assert (refused.code, "edenmem is using" in refused.err) == (2, True), command
    assert store.read_bytes() == before
    assert config.read_text() == "[search]\ntop_k = 5\n"


def test_the_files_of_a_mongodb_store(cli: Cli) -> None:
    """Only the configuration is a file; a former database may be overwritten."""
    cli.uri = "mongodb://127.0.0.1:1/eden"
    config = cli.cwd / "edenmem.toml"
    config.write_text("[search]\ntop_k = 5\n")
    assert cli("--version", "-o", config.name, "--force").code == 2
    cli("--version", "-o", "memory.db", "--force").ok()


def test_devices_and_pipes_are_written_into(cli: Cli) -> None:
    whole = cli(*LIST, "--json").ok().out
    assert cli.process(*LIST, "--json", "-o", "/dev/stdout").ok().out == whole
    assert cli(*LIST, "-o", "/dev/full").code == 5
    pipe = cli.cwd / "pipe"
    os.mkfifo(pipe)
    for command in (("-o", "pipe"), ("-o", "pipe", "--force")):
        read: list[str] = []
        reader = threading.Thread(
            target=lambda: read.append(pipe.read_text()),  # noqa: B023
            daemon=True,
        )
        reader.start()
        cli(*LIST, "--json", *command).ok()
        reader.join(60)
        assert read == [whole]
        assert pipe.is_fifo()


def test_no_link_is_followed_and_no_public_mode_is_kept(cli: Cli) -> None:
    """FAILURES 116."""
    folder = cli.cwd / "else"
    folder.mkdir()
    target = folder / "facts.json"
    for command in ((*LIST, "--json", "-o"), ("export",)):
        link = cli.cwd / "link"
        link.symlink_to("else/facts.json")  # dangling, then to a public file
        for exists in (False, True):
            if exists:
                target.write_text("mine")
                target.chmod(0o644)
            assert cli(*command, "link").code == 4
            assert target.exists() == exists
        cli(*command, "link", "--force").ok()
        assert target.read_text() == "mine"
        assert not link.is_symlink()
        assert stat.S_IMODE(link.stat().st_mode) == 0o600
        link.chmod(0o644)
        cli(*command, "link", "--force").ok()
        assert stat.S_IMODE(link.stat().st_mode) == 0o600
        link.unlink()
        target.unlink()
    assert cli(*LIST, "-o", "else", "--force").code == 2


def test_a_result_whose_name_is_taken_meanwhile_is_kept(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edenmem.engine.exchange import files

    def take(file: object) -> None:
        (cli.cwd / "token.txt").write_text("mine")

    monkeypatch.setattr(files, "save", take)
    refused = cli("token", "create", "site", "--agent", "mira", "-o", "token.txt").fails(4)
    assert (cli.cwd / "token.txt").read_text() == "mine"
    (kept,) = cli.cwd.glob("token.txt.*")
    assert str(kept.name) in refused.err
    assert "edm_" in kept.read_text()


def test_a_full_disk_is_noticed_before_the_change(cli: Cli) -> None:
    with small_disk(cli.cwd / "small", 64) as disk:
        (disk / "noise").write_bytes(bytes(60 * 1024))
        refused = cli("token", "create", "site", "--agent", "mira", "-o", str(disk / "token.txt"))
        assert (refused.code, [path.name for path in disk.iterdir()]) == (5, ["noise"])
    assert cli.json("token", "list") == []


def test_the_version_goes_to_the_file(cli: Cli) -> None:
    for command in (("-o", "a.txt", "--version"), ("-V", "-o", "b.txt")):
        assert cli(*command).ok().out == ""
    assert {(cli.cwd / f"{name}.txt").read_text() for name in "ab"} == {f"edenmem {__version__}\n"}
