"""``edenmem migrate``, as a person and as a script have it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edenmem.engine.migration.migrations import source_of
from edenmem.models.migration import RunState
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks.v1_dump import make_dump
from tests.cli.conftest import Cli
from tests.support.schema_steps import add_steps

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "v1_dump"
_SIZE = 500


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("v1") / "eden"
    assert sum(make_dump(folder, _SIZE).values()) == _SIZE
    return folder


@pytest.fixture
def new_cli(empty_cli: Cli) -> Cli:
    """Commands on a new store."""
    empty_cli("init", "--yes").ok()
    return empty_cli


def counts(cli: Cli) -> dict[str, int]:
    found: dict[str, int] = cli.json("status")[0]["store"]["counts"]
    return found


def test_a_migration_from_its_plan_to_its_way_back(new_cli: Cli, dump: Path) -> None:
    (plan,) = new_cli.json("migrate", "v1", "--from", str(dump), "--dry-run")
    assert plan["dry_run"]
    assert sum(plan["documents"].values()) == _SIZE
    assert not any(counts(new_cli).values())
    command = ("migrate", "v1", "--from", str(dump), "--yes")
    done = new_cli(*command, "--json").ok()
    (kept,) = done.rows
    assert kept["verification"]["documents"] == _SIZE
    run_id = kept["run"]["id"]
    assert kept["run"]["counts"]["migrated"] == sum(
        row[kind] for row in plan["rows"] for kind in ("facts", "reflections", "texts", "policies")
    ) - kept["run"]["counts"].get("merged", 0)
    assert f"edenmem migrate rollback {run_id}" in done.err
    there = counts(new_cli)
    assert there["facts"] == sum(row["facts"] for row in plan["rows"])

    assert f"nothing has changed since run {run_id} was verified" in new_cli(*command).ok().err
    assert {name: n for name, n in counts(new_cli).items() if name != "audit"} == {
        name: n for name, n in there.items() if name != "audit"
    }
    listed = new_cli.json("migrate", "status")[0]
    assert [run["state"] for run in listed["runs"]] == ["done"]
    assert all(step["applied_at"] for step in listed["schema"])
    assert "done" in new_cli("migrate", "status", run_id[:16]).ok().out

    check = new_cli.json("migrate", "verify", run_id)[0]
    assert check["complete"]
    looked = new_cli.json("migrate", "rollback", run_id, "--dry-run")
    assert sum(each["target_type"] == "fact" for each in looked) == there["facts"]
    assert counts(new_cli)["facts"] == there["facts"]
    new_cli("migrate", "rollback", run_id).fails(2, f"would be: {len(looked)} planned", "--yes")
    new_cli("migrate", "rollback", run_id, "--yes").ok()
    assert new_cli.json("scope", "list") == []  # a text that was taken back is none
    assert counts(new_cli)["facts"] == counts(new_cli)["reflections"] == 0
    assert new_cli("migrate", "verify", run_id).code == 4


def test_verify_ends_with_1_when_something_is_missing(
    new_cli: Cli, dump: Path, tmp_path: Path
) -> None:
    new_cli("migrate", "v1", "--from", str(dump), "--yes", "--no-embed").ok()
    file = sqlite3.connect(tmp_path / "new.db")
    (fact, change) = file.execute(
        "SELECT f.id, a.id FROM facts f JOIN audit a ON a.target_id = f.id LIMIT 1"
    ).fetchone()
    file.execute("DELETE FROM facts WHERE id = ?", (fact,))
    file.execute("DELETE FROM audit WHERE id = ?", (change,))
    file.commit()
    file.close()
    run_id = new_cli.json("migrate", "status")[0]["runs"][0]["id"]
    found = new_cli("migrate", "verify", run_id).fails(1)
    assert "1 difference from v1 that the log does not explain" in found.out
    assert "memory_sessions/" in found.out
    new_cli("migrate", "repair", run_id, "--yes").ok()
    new_cli("migrate", "verify", run_id).ok()


def test_one_agent_alone_and_other_ways_of_asking(new_cli: Cli, dump: Path) -> None:
    (plan,) = new_cli.json("migrate", "v1", "--from", str(dump), "--dry-run")
    agent = plan["rows"][0]["agent_id"]
    options = ("--agent", agent, "--shards", "keep", "--provenance", "--episodes", "keep")
    command = ("migrate", "v1", "--from", str(dump), "--yes", *options)
    new_cli(*command).ok()
    scopes = new_cli.json("scope", "list")
    assert {scope["agent_id"] for scope in scopes} == {agent}
    assert {scope["scope"] for scope in scopes} == {"user", "shard", "session"}
    run_id = new_cli.json("migrate", "status")[0]["runs"][0]["id"]
    assert new_cli.json("migrate", "verify", run_id)[0]["complete"]


def test_known_failure_80_incomplete_input_is_exit_1_until_it_is_accepted(
    new_cli: Cli, dump: Path, tmp_path: Path
) -> None:
    """Known failure 80: a dump that ends in the middle counted as verified."""
    broken = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(dump, broken)
    path = broken / "memory_sessions.bson"
    path.write_bytes(path.read_bytes()[:-30])
    source = ("--from", str(broken))
    planned = new_cli("migrate", "v1", *source, "--dry-run", "--format", "json").fails(1)
    (damage,) = json.loads(planned.out)[0]["incomplete"]
    new_cli("migrate", "v1", *source, "--dry-run", "--allow-incomplete").ok()
    assert (damage["kind"], damage["bytes"]) == ("ends_early", 30)
    command = ("migrate", "v1", *source, "--yes", "--no-embed")
    done = new_cli(*command).fails(1)
    assert "30 bytes of the last document are missing" in " ".join(done.out.split())
    assert "--allow-incomplete" in done.err
    (run,) = new_cli.json("migrate", "status")[0]["runs"]
    assert run["source"].endswith("caf\\xe9")
    assert (run["incomplete"], run["incomplete_accepted"]) == ([damage], False)
    assert new_cli("migrate", "verify", run["id"]).code == 1
    new_cli("migrate", "verify", run["id"], "--allow-incomplete").ok()

    new_cli(*command, "--allow-incomplete").ok()
    accepted, _ = new_cli.json("migrate", "status")[0]["runs"]
    assert (accepted["incomplete"], accepted["incomplete_accepted"]) == ([damage], True)
    assert new_cli.json("migrate", "verify", accepted["id"])[0]["complete"]


def test_known_failure_42_nothing_skips_the_question(
    new_cli: Cli, empty_cli: Cli, dump: Path
) -> None:
    """Known failure 42: one option skipped the confirmation of another."""
    for options in ((), ("--no-embed",), ("--format", "json")):
        new_cli("migrate", "v1", "--from", str(dump), *options).fails(2, "--yes")
    assert not any(counts(new_cli).values())
    asked = empty_cli.on_terminal(
        "migrate", "v1", "--from", str(dump), answers=[(f"Migrate {_SIZE} documents", "n")]
    )
    assert "nothing was changed" in asked.out
    assert not any(counts(new_cli).values())


def test_an_agent_is_named_as_in_the_source(new_cli: Cli) -> None:
    source = ("--from", str(EXAMPLE), "--allow-incomplete")
    (plan,) = new_cli.json("migrate", "v1", *source, "--agent", "otto", "--dry-run")
    assert {row["agent"] for row in plan["rows"]} == {"", "otto"}
    absent = new_cli("migrate", "v1", *source, "--agent", "a" * 24, "--dry-run").ok()
    assert f"no memory in the source for: {'a' * 24}" in absent.err


def test_a_username_that_is_taken_is_named_with_what_to_do(new_cli: Cli) -> None:
    new_cli("agent", "add", "mira").ok()
    command = ("migrate", "v1", "--from", str(EXAMPLE), "--no-embed", "--allow-incomplete", "--yes")
    told = " ".join(new_cli(*command).ok().err.split())
    assert "not added: ID or username already in use: 'mira'" in told
    again = told.partition("'edenmem agent add NAME ")[2].partition("'")[0]
    new_cli("agent", "add", "mira-v1", *again.split()).ok()
    assert "not added" not in new_cli(*command).ok().err


def test_before_there_is_a_store_it_can_be_planned(empty_cli: Cli, dump: Path) -> None:
    empty_cli("migrate", "v1", "--from", str(dump), "--yes").fails(5, "edenmem init")
    assert "edenmem init" in empty_cli("migrate", "v1", "--from", str(dump), "--dry-run").ok().err


def test_what_is_wrong_is_said_at_once(new_cli: Cli, dump: Path) -> None:
    for arguments, code, said in (
        (("v1", "--yes"), 2, "--from"),
        (("v1", "--from", "nowhere", "--yes"), 3, "nowhere"),
        (("v1", "--from", str(dump), "--on-conflict", "burn"), 2, "burn"),
        (("v1", "--from", str(EXAMPLE), "--agent", "nora", "--yes"), 3, "mira, otto"),
        (("status", "abcd"), 3, "migrate status"),
        (("verify", "abcd"), 3, "migrate status"),
        (("rollback", "abcd", "--yes"), 3, "migrate status"),
    ):
        found = new_cli("migrate", *arguments)
        assert (found.code, said in found.err) == (code, True), (arguments, found)


def test_the_schema_goes_up(new_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    first, _ = add_steps(monkeypatch, folder)
    new_cli("agent", "list").fails(5, "edenmem migrate up")
    status = new_cli("migrate", "status").ok()
    assert "pending" in status.out
    assert "migrate up" in status.err
    assert first in new_cli("migrate", "up", "--dry-run").ok().out
    assert f"applied {first}" in new_cli("migrate", "up").ok().out
    assert "up to date" in new_cli("migrate", "up").ok().out
    new_cli("agent", "list").ok()


def _width(screen: str) -> int:
    """The longest line, but for paths, which are not broken."""
    return max(len(line) for line in screen.splitlines() if not line.startswith(("from", "into")))


def test_the_dump_of_the_examples(new_cli: Cli) -> None:
    planned = new_cli("migrate", "v1", "--from", str(EXAMPLE), "--dry-run")
    assert (planned.code, _width(planned.out) <= 80) == (1, True)
    assert "29 to migrate, 5 to merge, 9 to leave behind, 4 bad" in planned.out
    assert "1 memory_agent.importance" in planned.out
    assert "Lantern Walk (2)" in " ".join(planned.out.split())
    assert "text of mira: shard Harbour fair, from memory_agent/" in planned.out
    assert "fact of mira: agent, from memory_sessions/" in planned.out
    assert "\x1b" not in planned.out
    done = new_cli("migrate", "v1", "--from", str(EXAMPLE), "--yes")
    assert (done.code, "memory_sessions.bson.gz ends early" in done.out) == (1, True)
    assert "29 migrated, 5 merged, 9 left behind, 4 bad" in done.out
    assert "47: 34 used, 9 left behind, 4 bad" in done.out
    assert "all 47 documents read are accounted for" in done.out
    assert _width(done.out) <= 80
    found = new_cli("fact", "list", "--agent", "mira").ok()
    assert "The Lantern Walk is on 12 December" in found.out


def test_killed_outright_it_goes_on(
    new_cli: Cli, empty_cli: Cli, dump: Path, tmp_path: Path
) -> None:
    """The ledger tells how far it is; there it is killed, twice, and then let be."""
    command = [*("migrate", "v1", "--from", str(dump), "--yes", "--no-embed", "--batch-size", "5")]
    store = SqliteStore(tmp_path / "new.db")
    for wanted in (100, 250):
        process = subprocess.Popen(
            [sys.executable, "-m", "edenmem", *command],
            cwd=tmp_path,
            env=empty_cli.environment(80, {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not any(
            r.done >= wanted for r in store.migrations.migration_runs()
        ):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        process.kill()
        process.wait()
        (run,) = store.migrations.migration_runs()
        assert run.state is RunState.RUNNING
        assert 0 < run.done < run.total
        # Whoever died is succeeded when its lease has run out, which nobody waits for here.
        with store.connections.writing() as connection:
            held = connection.execute("UPDATE migration_leases SET until = 0").rowcount
        assert held == 1
    report = new_cli.json(*command)[0]
    assert report["run"]["id"] == run.id
    assert report["run"]["resumed"] == 2
    assert report["run"]["done"] == sum(report["run"]["counts"].values()) == run.total
    assert report["run"]["counts"]["kept"] == 10  # the toggles of agents whom nobody knows
    assert not {"already", "failed"} & set(report["run"]["counts"])
    verified = report["verification"]
    assert (verified["differing"], verified["seen"]) == (0, verified["documents"])
    store.database.close()


#: Runs the command line, and gets a signal when the ledger is written for the third time.
SIGNALED = """
import os, sys
from edenmem.__main__ import main
from edenmem.store.sqlite.core.database import Migrations

put, count, number = Migrations.put_migration_run, 0, int(sys.argv.pop(1))

def put_and_signal(self, run):
    global count
    put(self, run)
    count += 1
    if count == 3:
        os.kill(os.getpid(), number)

Migrations.put_migration_run = put_and_signal
main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_interrupts_a_run_at_once(
    new_cli: Cli, empty_cli: Cli, dump: Path, tmp_path: Path, name: str
) -> None:
    command = ("migrate", "v1", "--from", str(dump), "--yes", "--no-embed", "--batch-size", "1")
    done = subprocess.run(
        [sys.executable, "-c", SIGNALED, str(int(getattr(signal, name))), *command],
        cwd=tmp_path,
        env=empty_cli.environment(80, {}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 130, done.stderr
    (run,) = new_cli.json("migrate", "status")[0]["runs"]
    assert run["state"] == "interrupted"
    assert 0 < run["done"] < run["total"]
    report = new_cli.json(*command)[0]
    assert (report["run"]["id"], report["run"]["resumed"]) == (run["id"], 1)


@pytest.mark.parametrize(
    ("source", "again"),
    [
        ("mongodb://db:27017/eden", None),  # the configured store, with its credentials
        ("mongodb://db:27017/old", "mongodb://db:27017/old"),
        ("mongodb://other/eden", "mongodb://other/eden"),
        ("/dumps/db:27017/eden", "/dumps/db:27017/eden"),
    ],
)
def test_a_run_is_verified_against_the_database_that_it_read(
    source: str, again: str | None
) -> None:
    info = SimpleNamespace(location="mongodb://db:27017/eden (eden)")
    store: Any = SimpleNamespace(database=SimpleNamespace(info=lambda: info))
    found: Any = SimpleNamespace(source=source)
    assert source_of(store, found) == again


@pytest.mark.parametrize("name", ["queries.jsonl", "damaged.jsonl", "users3.json"])
@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_input_without_v1_data_is_one_error_and_no_run(
    new_cli: Cli, tmp_path: Path, name: str, option: str
) -> None:
    content = {
        "queries.jsonl": '{"query": "tea", "expect": ["1"]}\n{"query": "jam", "expect": ["2"]}\n',
        "damaged.jsonl": '{"query": "tea"',
        "users3.json": '[{"_id": {"$oid": "111111111111111111111111"}, "type": "user"}]',
    }
    (tmp_path / name).write_text(content[name])
    refused = new_cli("migrate", "v1", "--from", str(tmp_path / name), option).fails(2)
    assert refused.out == ""
    assert refused.err.count("edenmem: error: ") == 1
    assert f"no v1 memory in {tmp_path / name}" in refused.err
    assert name not in new_cli("migrate", "status").ok().out
