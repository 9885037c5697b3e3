"""An operator's bad day: something is wrong with a memory, somebody edited the wrong text, and in
the end everything is as it should be."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Inside

USER = ("--agent", "mira", "--user", "lena")


@pytest.fixture
def shop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    """edenmem on a new store."""
    return Inside(Cli(f"sqlite:///{tmp_path}/memory.db", tmp_path), monkeypatch, capsys)


def spoil_hash(fact_id: str) -> None:
    """Give a fact a hash that is not its text's, as no command can."""
    path = os.environ["EDENMEM_URI"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE facts SET hash = 'spoilt' WHERE id = ?", (fact_id,))


@pytest.mark.slow
def test_an_operators_bad_day(shop: Inside) -> None:
    """Known failure 53: history and undo, who changed what and why, diff: all were missing."""
    shop("init", "--yes").ok()
    shop("user", "add", "lena").ok()
    shop("agent", "add", "mira", "--owner", "lena").ok()
    shop("fact", "add", *USER, "--content", "Lena folds whale lanterns.").ok()
    shop("consolidation", "edit", *USER, "--content", "Lena folds whales.", "--yes").ok()
    (fact,) = shop.json("fact", "list", *USER)

    # A program went past edenmem. What is wrong, and can it be mended?
    shop("doctor", "--quiet").ok()
    spoil_hash(fact["id"])
    sick = shop("doctor", "--full", "--format", "json")
    assert sick.code == 1
    found = {check["name"]: check for check in sick.data if check["count"]}
    assert fact["id"] in str(found["hashes"])
    plan = shop("doctor", "--fix", "--dry-run")
    assert fact["id"][:14] in plan.out
    assert shop("doctor", "--full", "--quiet").code == 1  # a plan mends nothing
    shop("doctor", "--fix", "--yes").ok()
    shop("doctor", "--full", "--quiet").ok()
    assert "doctor" in shop.json("log", "--target", fact["id"])[0]["actor"]["command"]

    # Somebody edits the wrong things.
    shop("consolidation", "edit", *USER, "--content", "Tomas keeps the money.", "--yes").ok()
    shop("fact", "edit", fact["id"], "--content", "Tomas keeps the money.", "--yes").ok()

    # What is it that was changed, by whom, and why?
    entries = shop.json("log", *USER, "--since", "1h", "--limit", "2")
    assert [entry["action"] for entry in entries] == ["revise_fact", "write_consolidation"]
    assert {entry["actor"]["name"] for entry in entries} == {"tester"}
    why = shop("why", fact["id"]).ok().out
    assert "Lena folds whale lanterns." in why

    # The fact is put right by an undo, the text by hand.
    shop("undo", entries[0]["id"], "--yes", "--reason", "the wrong person").ok()
    (put_right,) = shop.json("fact", "list", *USER)
    assert put_right["content"] == "Lena folds whale lanterns."
    diff = shop("consolidation", "diff", *USER).ok().out
    assert "-Lena folds whales.\n+Tomas keeps the money." in diff
    shop("restore", "mira/user:lena", "--version", "1", "--yes").ok()
    text = shop.json("consolidation", "show", *USER)[0]
    assert (text["consolidated_content"], text["version"]) == ("Lena folds whales.", 3)

    # Undoing the edit now has nothing to do; the restoration stands in nobody's way.
    assert "nothing to do" in shop("undo", entries[1]["id"], "--yes").ok().err

    # The undo was the mistake? It is taken back, and that again.
    (last, *_) = shop.json("log", "--target", fact["id"])
    assert last["undoes"] == entries[0]["id"]
    shop("undo", last["id"], "--yes").ok()
    assert shop.json("fact", "list", *USER)[0]["content"] == "Tomas keeps the money."
    shop("undo", entries[0]["id"], "--yes").ok()
    assert shop.json("fact", "list", *USER)[0]["content"] == "Lena folds whale lanterns."
    shop("doctor", "--quiet").ok()
