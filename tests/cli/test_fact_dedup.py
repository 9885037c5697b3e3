"""``edenmem fact merge`` as its users have it: looked at, by a model, and by hand."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.cli.conftest import Cli, controls
from tests.cli.test_engine_commands import scripted
from tests.support.fake_openai import KEY, FakeOpenAI

pytestmark = pytest.mark.slow

LENA = ("--agent", "mira", "--user", "lena")
TEA, TEA_TOO = "Lena likes green tea.", "lena likes green TEA"


@pytest.fixture
def twice(cli: Cli) -> Cli:
    """Two facts of one user with the same words, and the same words about another user."""
    for owner, text in (("lena", TEA), ("lena", TEA_TOO), ("tomas", TEA)):
        cli("fact", "add", "--agent", "mira", "--user", owner, "--content", text).ok()
    return cli


def facts(cli: Cli) -> list[str]:
    rows = cli.json("fact", "list", *LENA, "--scope", "user", "--limit", "0")
    return sorted(row["content"] for row in rows if "tea" in row["content"].casefold())


def test_in_a_pipe_somebody_has_to_say_what_to_do(twice: Cli) -> None:
    refused = twice("fact", "merge", *LENA)
    assert (refused.code, refused.out) == (2, "")
    assert "--llm" in refused.err
    alone = twice("fact", "merge", *LENA, "--yes")
    assert alone.code == 2
    assert "add --llm" in alone.err
    model = scripted(twice, {})
    unasked = twice("fact", "merge", *LENA, "--llm", *model)
    assert unasked.code == 2
    assert "--yes" in unasked.err
    assert facts(twice) == sorted([TEA, TEA_TOO])


def test_a_model_merges(twice: Cli) -> None:
    merged = {"facts": [1, 2], "reason": "the same", "content": "Lena likes green tea a lot."}
    model = scripted(twice, {("merge", f"user/mira/lena/{TEA}"): {"merges": [merged]}})
    planned = twice("fact", "merge", *LENA, "--llm", "--dry-run", *model).ok()
    assert "+Lena likes green tea a lot." in planned.out
    assert facts(twice) == sorted([TEA, TEA_TOO])
    done = twice("fact", "merge", *LENA, "--llm", "--yes", *model).ok()
    assert "Lena likes green tea a lot." in done.out
    assert facts(twice) == ["Lena likes green tea a lot."]
    again = twice("fact", "merge", *LENA, "--llm", "--yes", *model).ok()
    assert "no near-duplicates" in again.err


def test_an_answer_that_is_refused_is_told_and_ends_with_1(twice: Cli) -> None:
    wild = {"facts": [1, 99], "reason": "x", "content": "Lena."}
    model = scripted(twice, {("merge", f"user/mira/lena/{TEA}"): {"merges": [wild]}})
    refused = twice("fact", "merge", *LENA, "--llm", "--yes", *model)
    assert refused.code == 1
    assert "unknown fact number" in refused.err
    assert facts(twice) == sorted([TEA, TEA_TOO])


def test_a_merge_that_cannot_be_made_stops_no_other(twice: Cli) -> None:
    """Known failure 9: one conflict dropped everything after it, and nothing was told."""
    coffee = "Lena likes coffee."
    for text in (coffee, coffee.upper()):
        twice("fact", "add", *LENA, "--content", text).ok()

    def answer(body: dict[str, Any]) -> str:
        with closing(sqlite3.connect(twice.uri.removeprefix("sqlite:///"))) as other:
            other.execute("UPDATE facts SET version = version + 1 WHERE content = ?", (TEA,))
            other.commit()
        merged = {"facts": [1, 2], "reason": "the same", "content": "Lena likes hot drinks."}
        return json.dumps({"merges": [merged]})

    with FakeOpenAI(answer) as fake:
        model = {"EDENMEM_LLM_BASE_URL": fake.url, "EDENMEM_LLM_API_KEY": KEY}
        model["EDENMEM_LLM_FAST_MODEL"] = "fast-1"
        done = twice("fact", "merge", *LENA, "--llm", "--yes", env=model)
    assert done.code == 1, done
    assert "another writer changed fact" in done.err
    assert "Lena likes hot drinks." in done.out
    rows = twice.json("fact", "list", *LENA, "--scope", "user", "--limit", "0")
    stored = {row["content"] for row in rows}
    assert {TEA, TEA_TOO, "Lena likes hot drinks."} <= stored
    assert not {coffee, coffee.upper()} & stored


def test_a_person_chooses(twice: Cli) -> None:
    down, enter = "\x1b[B", "\r"
    screen = twice.on_terminal(
        "fact", "merge", *LENA, answers=[("What to do", down + down + enter)]
    ).ok()
    assert "group 1 of 1: mira: user lena" in screen.out
    assert facts(twice) == [TEA_TOO]
    (entry, *_) = [
        each for each in twice.json("fact", "list", "--agent", "mira", "--user", "tomas")
        if each["content"] == TEA
    ]  # fmt: skip
    assert entry["version"] == 1  # another user's is as it was


def test_hostile_facts_stay_on_their_line(cli: Cli) -> None:
    hostile = "[bold]Lena[/bold] \x1b[2J\x1b]0;owned\x07 \u202e likes tea"
    for text in (hostile, hostile.upper()):
        cli("fact", "add", *LENA, "--content", text).ok()
    shown = cli.on_terminal("fact", "merge", *LENA, "--dry-run").ok().out
    assert "[bold]Lena[/bold]" in shown
    assert not controls(shown)
