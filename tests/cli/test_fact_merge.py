"""``edenmem fact merge`` as its users have it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow

LENA = ("--agent", "mira", "--user", "lena")
TEA, TEA_TOO = "Lena likes green tea.", "lena likes green TEA"


def test_facts_are_merged_and_brought_back(cli: Cli) -> None:
    for text in (TEA, TEA_TOO):
        cli("fact", "add", *LENA, "--content", text).ok()

    def tea() -> dict[str, str]:
        rows = cli.json("fact", "list", *LENA, "--scope", "user", "--limit", "0")
        return {row["content"]: row["id"] for row in rows if "tea" in row["content"].casefold()}

    ids = tea().values()
    assert "would" in cli("fact", "merge", *ids, "--dry-run").ok().out
    assert len(tea()) == 2
    merged = cli("fact", "merge", *ids, "--content", "Lena likes tea.").ok()
    assert list(tea()) == ["Lena likes tea."]
    assert "to undo: edenmem undo --run" in merged.err
    cli("undo", "--run", merged.err.split("--run ")[1].split()[0], "--yes").ok()
    assert set(tea()) == {TEA, TEA_TOO}
