"""``--read-only``, and a profile that is always so."""

from __future__ import annotations

import hashlib

import pytest

from tests.cli.conftest import Cli

MIRA_LENA = ("--agent", "mira", "--user", "lena")

#: Commands that write, each complete but for the store that lets it.
WRITING = (
    ("init", "--yes"),
    ("agent", "add", "nora"),
    ("user", "add", "nora"),
    ("agent", "set", "mira", "--no-user-memory"),
    ("fact", "add", *MIRA_LENA, "--content", "New."),
    ("fact", "edit", "f" * 23 + "1", "--content", "New.", "--yes"),
    ("delete", "f" * 23 + "1", "--yes"),
    ("delete", "e" * 24, "--yes"),
    ("consolidation", "edit", *MIRA_LENA, "--content", "New.", "--yes"),
    ("scope", "pause", *MIRA_LENA, "--scope", "user"),
    ("consolidate", "--force"),
    ("form", "first-visit"),
    ("cold", "run"),
    ("embed", "backfill", "--yes"),
)
READING = (
    ("status",),
    ("agent", "list"),
    ("scope", "list"),
    ("fact", "list", "--agent", "mira"),
    ("search", "whale lanterns", *MIRA_LENA, "--recipe", "text"),
    ("context", "first-visit"),
    ("cold", "status"),
    ("fact", "add", *MIRA_LENA, "--content", "New.", "--dry-run"),
)


def digest(cli: Cli) -> str:
    """What the file holds, byte by byte."""
    return hashlib.sha256(cli.file.read_bytes()).hexdigest()


def test_every_byte_stays_whatever_is_run(cli: Cli) -> None:
    before = digest(cli)
    for words in READING:
        result = cli("--read-only", *words).ok()
        assert "were not counted" not in result.err  # as was asked for
    for words in WRITING:
        refused = cli(*words, "--read-only")
        assert refused.code == 2, f"{words}: {refused}"
        assert refused.out == ""
        assert "--read-only" in refused.err
    assert digest(cli) == before


def test_a_profile_can_be_always_so(cli: Cli) -> None:
    (cli.cwd / "edenmem.toml").write_text("[profiles.production.store]\nread_only = true\n")
    cli("--profile", "production", "agent", "list").ok()
    cli("agent", "set", "mira", "--no-user-memory", env={"EDENMEM_PROFILE": "production"}).fails(
        2, "edenmem.toml [profiles.production] sets store.read_only"
    )
    cli("agent", "set", "mira", "--no-user-memory").ok()


@pytest.mark.parametrize("words", [("agent", "list"), ("--help",)])
def test_it_may_stand_before_and_after_the_command(cli: Cli, words: tuple[str, ...]) -> None:
    cli("--read-only", *words).ok()
    cli(*words, "--read-only").ok()
