"""An operator's bad day: something is wrong with a memory, somebody edited the wrong text, and in
the end everything is as it should be. On both stores."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edenmem.models.ids import new_id
from tests.cli.conftest import Cli, Inside
from tests.support.stores import SECANTUS_TOO

USER = ("--agent", "mira", "--user", "lena")


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def shop(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Inside]:
    """edenmem on a new store of each kind."""
    if request.param == "sqlite":
        cli = Cli(f"sqlite:///{tmp_path}/memory.db", tmp_path)
        yield Inside(cli, monkeypatch, capsys)
        return
    from pymongo import MongoClient

    uri, name = request.getfixturevalue("secantus_uri"), f"bad_day_{new_id()}"
    cli = Cli(f"{uri.rstrip('/')}/{name}", tmp_path)
    yield Inside(cli, monkeypatch, capsys)
    with MongoClient(uri) as client:
        client.drop_database(name)


def spoil_hash(fact_id: str) -> None:
    """Give a fact a hash that is not its text's, as no command can."""
    uri = os.environ["EDENMEM_URI"]
    if uri.startswith("sqlite:"):
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as file, file:
            file.execute("UPDATE facts SET hash = 'spoilt' WHERE id = ?", (fact_id,))
        return
    from bson import ObjectId
    from pymongo import MongoClient

    with MongoClient[Any](uri) as client:
        facts = client.get_default_database()["memory2_facts"]
        facts.update_one({"_id": ObjectId(fact_id)}, {"$set": {"hash": "spoilt"}})


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
    sick = shop("doctor", "--format", "json")
    assert sick.code == 1
    found = {check["name"]: check for check in sick.data if check["count"]}
    assert fact["id"] in str(found["hashes"])
    plan = shop("doctor", "--fix", "--dry-run")
    assert fact["id"][:14] in plan.out
    assert shop("doctor", "--quiet").code == 1  # a plan mends nothing
    shop("doctor", "--fix", "--yes").ok()
    shop("doctor", "--quiet").ok()
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
