"""What a file system does to a store: damage, a full disk, and names in two encodings."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.disks import small_disk

pytestmark = pytest.mark.slow


def test_a_damaged_page_is_named_as_damage(cli: Cli, tmp_path: Path) -> None:
    """Whatever page it is: what cannot be read is no bug of ours, and no empty answer."""
    path = cli.file
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


class Damaged:
    """A file with 300 facts, of which single pages are damaged."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        lines = [
            {"type": "fact", "agent": "mira", "scope": "agent", "content": f"{n} {'Lamp ' * 60}{n}"}
            for n in range(300)
        ]
        cli("import", "-", "--allow-long", input="\n".join(map(json.dumps, lines))).ok()
        path = cli.file
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (self.size,) = file.execute("PRAGMA page_size").fetchone()
            roots = file.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0")
            self.roots = dict(roots.fetchall())
        self._whole, self._folder, self._cli = path.read_bytes(), folder, cli
        self.facts = self.count(path, folder / "whole.jsonl")

    def page(self, name: str, number: int, seed: int | None) -> Path:
        """Return a file with noise, or with zeros, in place of a page."""
        start = (number - 1) * self.size
        noise = bytes(self.size) if seed is None else random.Random(seed).randbytes(self.size)
        return self.file(name, self._whole[:start] + noise + self._whole[start + self.size :])

    def file(self, name: str, content: bytes | None = None) -> Path:
        """Return a file with this content."""
        path = self._folder / f"{name}.db"
        path.write_bytes(self._whole if content is None else content)
        return path

    def leaf(self, table: str, nth: int) -> int:
        """Return the number of a leaf page of a table of two levels."""
        start = (self.roots[table] - 1) * self.size
        assert self._whole[start] == 5, "an inner page"
        cell = start + int.from_bytes(self._whole[start + 12 + 2 * nth :][:2], "big")
        return int.from_bytes(self._whole[cell : cell + 4], "big")

    def run(self, path: Path, *command: str) -> Any:
        result = self._cli(*command, "--uri", f"sqlite:///{path}")
        assert "bug" not in result.err
        return result

    def count(self, path: Path, target: Path, *options: str) -> int:
        """Return the number of exported facts; 0 if there is no export."""
        self.run(path, "export", str(target), *options)
        if not target.exists():
            return 0
        lines = (json.loads(line) for line in target.read_text().splitlines())
        return sum(line["type"] == "fact" for line in lines)


def test_damage_of_indexes_is_repaired(cli: Cli, tmp_path: Path) -> None:
    """FAILURES 123: ``doctor --fix`` repaired no damaged file."""
    damaged = Damaged(cli, tmp_path)
    for table, seed in {
        "facts_recent": 1,
        "sqlite_autoindex_audit_1": None,
        "history_target": 2,
        "sqlite_autoindex_facts_1": 3,
        "facts_text_data": 4,
        "facts_text_idx": None,
    }.items():
        path = damaged.page(table, damaged.roots[table], seed)
        before = path.stat().st_ino
        damaged.run(path, "doctor", "--fix", "--yes")
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)], table
        assert damaged.count(path, tmp_path / f"{table}.jsonl") == damaged.facts, table
        found = damaged.run(path, "search", "lamp", "--agent", "mira", "--no-track")
        assert (found.code, "Lamp" in found.out, path.stat().st_ino) == (0, True, before), table


def test_what_can_be_read_of_a_damaged_file_is_saved(cli: Cli, tmp_path: Path) -> None:
    """FAILURES 123: one damaged page left no export at all."""
    damaged = Damaged(cli, tmp_path)
    path = damaged.page("lost", damaged.leaf("facts", 1), 5)
    before = path.read_bytes()
    damaged.run(path, "doctor", "--fix", "--yes").fails(1)
    assert path.read_bytes() == before  # no rows are given up unasked
    assert damaged.run(path, "export", str(tmp_path / "none.jsonl")).code == 5
    saved = tmp_path / "saved.jsonl"
    result = damaged.run(path, "export", "--salvage", str(saved)).fails(1)
    (lost,) = re.findall(r"facts: rows (\d+) to (\d+) cannot be read", result.err)
    kept = [json.loads(line) for line in saved.read_text().splitlines()]
    facts = [line for line in kept if line["type"] == "fact"]
    assert len(facts) == damaged.facts - (int(lost[1]) - int(lost[0]) + 1)
    assert len(facts) > damaged.facts / 2

    new = f"sqlite:///{tmp_path / 'new.db'}"
    cli("init", "--yes", "--uri", new).ok()
    cli("import", str(saved), "--uri", new).ok()
    assert damaged.count(tmp_path / "new.db", tmp_path / "new.jsonl") == len(facts)

    whole = damaged.file("whole")
    assert damaged.count(whole, tmp_path / "all.jsonl", "--salvage") == damaged.facts
    assert damaged.run(whole, "export", "--salvage", str(tmp_path / "a.jsonl")).code == 0


def test_cut_files_are_saved_or_named(cli: Cli, tmp_path: Path) -> None:
    """FAILURES 123, 124: no export, and errors that were called bugs."""
    damaged = Damaged(cli, tmp_path)
    content = damaged.file("whole").read_bytes()
    for share in (0.5, 0.9):
        path = damaged.file("cut", content[: int(len(content) * share)])
        target = tmp_path / f"{share}.jsonl"
        damaged.run(path, "export", "--salvage", str(target)).fails(1, "not salvaged: ")
        assert target.exists()
    path = damaged.file("header", bytes(100) + content[100:])
    damaged.run(path, "export", "--salvage", str(tmp_path / "header.jsonl")).fails(
        5, "is not an edenmem database"
    )


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
        cli("import", "-", input="\n".join(lines)).fails(5, "the disk is full", "free some space")
        assert cli.json("fact", "list", "--agent", "mira", "--limit", "1")

        cli("export", str(disk / "backup.jsonl")).fails(5, "the disk is full")
        assert [path.name for path in disk.glob("*.*") if "memory.db" not in path.name] == []


def test_long_output_on_a_full_disk_keeps_the_old_file(cli: Cli, tmp_path: Path) -> None:
    cli("agent", "add", "long", "--persona", "x" * 120_000).ok()
    command = ("show", "long", "--json")
    with small_disk(tmp_path / "disk", 100) as disk:
        old = disk / "long.json"
        old.write_text("old")
        cli.process(*command, "-o", str(old), "--force").fails(5, "long.json: the disk is full")
        assert [(path.name, path.read_text()) for path in disk.iterdir()] == [("long.json", "old")]
        assert cli.process(*command, "-o", str(disk / "new.json")).code == 5
        assert [path.name for path in disk.iterdir()] == ["long.json"]


@pytest.mark.parametrize("stored", ["é", "e\u0301"], ids=["composed", "decomposed"])
def test_names_are_found_however_accents_are_encoded(cli: Cli, stored: str) -> None:
    from edenmem.store.sqlite import SqliteStore
    from tests.support.builders import make_agent, make_session, make_user

    store = SqliteStore(cli.file)
    agent, user = make_agent(f"Ren{stored}"), make_user(f"Zo{stored}")
    store.host.add_agent(agent)
    store.host.add_user(user)
    store.host.put_session(make_session([agent], [user], name=f"caf{stored}"))
    store.database.close()
    for typed in ("é", "e\u0301"):
        assert cli.json("show", f"ren{typed}")[0]["username"] == f"Ren{stored}"
        assert cli.json("show", f"Zo{typed}")[0]["username"] == f"Zo{stored}"
        assert cli.json("show", f"caf{typed}")[0]["name"] == f"caf{stored}"


def test_new_names_are_stored_composed(cli: Cli) -> None:
    cli("agent", "add", "Jose\u0301").ok()
    assert cli.json("show", "José")[0]["username"] == "José"
    assert cli("agent", "add", "José").code == 4
    shard = ("--agent", "mira", "--shard")
    cli("scope", "policy", *shard, "cafe\u0301", "--memory-instructions", "Coffee").ok()
    for typed in ("café", "cafe\u0301", "CAFÉ"):
        assert cli.json("scope", "policy", *shard, typed)[0]["shard"] == "café"
    line = {"type": "fact", "agent": "mira", "scope": "user", "content": "Tea."}
    cli("user", "add", "Zoé").ok()
    cli("import", "-", input=json.dumps(line | {"user": "Zoe\u0301"})).ok()
