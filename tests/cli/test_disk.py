"""What a file system does to a store: damage, a full disk, and names in two encodings."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.support.disks import small_disk


def test_a_damaged_page_is_named_as_damage(cli: Cli, tmp_path: Path) -> None:
    """Whatever page it is: what cannot be read is no bug of ours, and no empty answer."""
    path = Path(cli.uri.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = file.execute("PRAGMA page_size").fetchone()
        roots = dict(file.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))
    whole = path.read_bytes()
    for table, command in {
        "facts": ("fact", "list", "--agent", "mira"),
        "facts_text_data": ("search", "lanterns", "--agent", "mira", "--no-track"),
        "audit": ("log",),
        "sessions": ("session", "list"),
    }.items():
        start = (roots[table] - 1) * size
        noise = random.Random(table).randbytes(size)
        other = tmp_path / f"{table}.db"
        other.write_bytes(whole[:start] + noise + whole[start + size :])
        result = cli(*command, "--uri", f"sqlite:///{other}")
        assert result.code == 5, (table, result.out)
        assert "is damaged" in result.err
        assert "restore a backup" in result.err


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 6000) as disk:
        cli = Cli(f"sqlite:///{disk}/memory.db", tmp_path)
        cli("init", "--yes").ok()
        cli("agent", "add", "mira").ok()
        texts = [random.Random(number).randbytes(60).hex() for number in range(20_000)]
        lines = [
            json.dumps({"type": "fact", "agent": "mira", "scope": "agent", "content": text})
            for text in texts
        ]
        full = cli("import", "-", input="\n".join(lines))
        assert full.code == 5, full.err
        assert "the disk is full" in full.err
        assert "free some space" in full.err
        assert cli.json("fact", "list", "--agent", "mira", "--limit", "1")

        out = cli("export", str(disk / "backup.jsonl"))
        assert (out.code, "the disk is full" in out.err) == (5, True)
        page = cli("stats", "--html", str(disk / "page.html"))
        assert (page.code, "the disk is full" in page.err) == (5, True)
        assert [path.name for path in disk.glob("*.*") if "memory.db" not in path.name] == []


def test_long_output_on_a_full_disk_keeps_the_old_file(cli: Cli, tmp_path: Path) -> None:
    cli("agent", "add", "long", "--persona", "x" * 120_000).ok()
    command = ("agent", "show", "long", "--json")
    with small_disk(tmp_path / "disk", 100) as disk:
        old = disk / "long.json"
        old.write_text("old")
        refused = cli.process(*command, "-o", str(old), "--force")
        assert (refused.code, "long.json: the disk is full" in refused.err) == (5, True)
        assert [(path.name, path.read_text()) for path in disk.iterdir()] == [("long.json", "old")]
        assert cli.process(*command, "-o", str(disk / "new.json")).code == 5
        assert [path.name for path in disk.iterdir()] == ["long.json"]


@pytest.mark.parametrize("stored", ["é", "e\u0301"], ids=["composed", "decomposed"])
def test_names_are_found_however_accents_are_encoded(cli: Cli, stored: str) -> None:
    from edenmem.store.sqlite import SqliteStore
    from tests.support.builders import make_agent, make_session, make_user

    store = SqliteStore(Path(cli.uri.removeprefix("sqlite:///")))
    agent, user = make_agent(f"Ren{stored}"), make_user(f"Zo{stored}")
    store.host.add_agent(agent)
    store.host.add_user(user)
    store.host.put_session(make_session([agent], [user], name=f"caf{stored}"))
    store.database.close()
    for typed in ("é", "e\u0301"):
        assert cli.json("agent", "show", f"ren{typed}")[0]["username"] == f"Ren{stored}"
        assert cli.json("user", "show", f"Zo{typed}")[0]["username"] == f"Zo{stored}"
        assert cli.json("session", "show", f"caf{typed}")[0]["name"] == f"caf{stored}"


def test_new_names_are_stored_composed(cli: Cli) -> None:
    cli("agent", "add", "Jose\u0301").ok()
    assert cli.json("agent", "show", "José")[0]["username"] == "José"
    assert cli("agent", "add", "José").code == 4
    shard = ("--agent", "mira", "--shard")
    cli("scope", "policy", *shard, "cafe\u0301", "--memory-instructions", "Coffee").ok()
    for typed in ("café", "cafe\u0301", "CAFÉ"):
        assert cli.json("scope", "policy", *shard, typed)[0]["shard"] == "café"
    line = {"type": "fact", "agent": "mira", "scope": "user", "content": "Tea."}
    cli("user", "add", "Zoé").ok()
    cli("import", "-", input=json.dumps(line | {"user": "Zoe\u0301"})).ok()
