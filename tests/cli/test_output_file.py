"""``-o FILE``: the result in a file that is whole or not there."""

from __future__ import annotations

import gzip
import json
import stat

import pytest

from tests.cli.conftest import Cli, Inside

LIST = ("fact", "list", "--agent", "mira")


def test_the_file_holds_what_stdout_would(shared_cli: Cli) -> None:
    folder = shared_cli.cwd
    for format in ("json", "csv", "table"):
        command = (*LIST, "--format", format)
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
    assert shared_cli("fact", "show", "0" * 24, "-o", "fact.txt").code == 3
    assert shared_cli(*LIST, "-o", "no/such/folder.txt").code == 2
    assert sorted(shared_cli.cwd.iterdir()) == before


def test_a_report_of_failures_is_a_result(cli: Cli) -> None:
    command = ("session", "import", "-", "--skip-bad", "--dry-run", "--json", "-o", "report.json")
    result = cli(*command, input="nonsense\n")
    assert (result.code, result.out) == (1, "")
    (report,) = json.loads((cli.cwd / "report.json").read_text())
    assert report["dry_run"] is True


def test_an_export_takes_its_file_either_way(shared_cli: Cli) -> None:
    shared_cli("export", "-o", "one.jsonl").ok()
    shared_cli("export", "two.jsonl").ok()
    one, two = ((shared_cli.cwd / name).read_text() for name in ("one.jsonl", "two.jsonl"))
    assert one.splitlines()[1:] == two.splitlines()[1:]
    assert shared_cli("export", "two.jsonl", "-o", "one.jsonl").code == 2


@pytest.mark.parametrize("command", [("log", "--follow"), ("cold", "run", "--watch"), ("mcp",)])
def test_what_does_not_end_writes_no_file(command: tuple[str, ...], inside: Inside) -> None:
    result = inside(*command, "-o", "x")
    assert (result.code, "-o does not apply" in result.err) == (2, True)
