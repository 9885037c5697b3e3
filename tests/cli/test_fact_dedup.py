"""``edenmem fact merge`` as its users have it: looked at, and by hand."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, controls

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


def test_in_a_pipe_nobody_can_choose(twice: Cli) -> None:
    refused = twice("fact", "merge", *LENA)
    assert (refused.code, refused.out) == (2, "")
    assert "--dry-run" in refused.err
    assert facts(twice) == sorted([TEA, TEA_TOO])


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
