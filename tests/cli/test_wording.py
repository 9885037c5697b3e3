"""What a person reads after a command: names instead of ids, whole words, nothing cut in a pipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow

FACT = "f" * 23 + "1"
LONG = "The lantern of the whale " + "is carried by two and " * 8 + "lit at dusk."


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("scope", "pause", "--agent", "mira"), "paused mira: agent\n"),
        (("scope", "pause", "--agent", "mira", "--dry-run"), "would pause mira: agent\n"),
        (
            ("scope", "policy", "--agent", "mira", "--user", "lena", "--word-limit", "80"),
            "set the policy of mira: user lena\n",
        ),
        (
            ("scope", "policy", "--agent", "mira", "--word-limit", "80", "--dry-run"),
            "would set the policy of mira: agent\n",
        ),
        (
            ("agent", "set", "mira", "--no-user-memory"),
            "set agent mira: user memory off, agent memory on\n",
        ),
        (("fact", "edit", FACT, "--private"), f"marked fact {FACT} private\n"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_change_says_what_was_done_to_whom(command: tuple[str, ...], said: str, cli: Cli) -> None:
    assert said in cli(*command).ok().out


def test_a_deleted_fact_is_told_from_one_that_never_was(cli: Cli) -> None:
    cli("delete", FACT, "--yes").ok()
    for command in ("show", "edit", "delete"):
        cli(command, FACT).fails(
            3, f"the fact was deleted: {FACT}", f"restore it with 'edenmem restore {FACT}'"
        )
    assert cli("restore", FACT).ok().out == f"restored fact {FACT}\n"
    assert "deleted" not in cli("show", "0" * 24).err


@pytest.mark.parametrize(
    "command",
    [
        ("fact", "list", "--scope", "session"),
        ("fact", "add", "--scope", "session", "--content", "x"),
        ("search", "x", "--scope", "session"),
    ],
    ids=" ".join,
)
def test_that_a_session_has_no_facts_is_said_at_once(
    command: tuple[str, ...], shared_cli: Cli
) -> None:
    result = shared_cli(*command, "--agent", "mira").fails(2, "a session scope has no facts")
    assert "needs --session" not in result.err


def test_the_hint_for_an_unknown_shard_makes_one(cli: Cli) -> None:
    hint = cli("fact", "list", "--agent", "mira", "--shard", "walk").err
    assert "--shard NAME --memory-instructions TEXT" in hint
    cli(
        "scope", "policy", "--agent", "mira", "--shard", "walk", "--memory-instructions", "Roads"
    ).ok()
    cli("fact", "list", "--agent", "mira", "--shard", "walk").ok()


def test_an_unknown_setting_is_an_error(shared_cli: Cli) -> None:
    shared_cli("config", "show", "search.topk").fails(
        3, "no such setting: 'search.topk'", "search.top_k"
    )
    assert "'edenmem config show' lists all" in shared_cli("config", "show", "search", "xyz").err


def test_an_error_is_broken_between_words_on_a_terminal(cli: Cli) -> None:
    command = ("fact", "list", "--agent", "mira", "--shard", "walk")
    lines = cli.on_terminal(*command, columns=40).err.splitlines()
    assert all(len(line) <= 40 for line in lines if " " in line.strip())
    assert lines[0].startswith("edenmem: error: ")
    assert lines[1].startswith("    ")
    piped = cli(*command, columns=40).err.splitlines()
    assert len(piped) == 2
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(piped).split())


def test_an_agent_that_takes_no_part_is_named(shared_cli: Cli) -> None:
    shared_cli("context", "first-visit", "--agent", "otto").fails(
        3, "agent 'otto' is not part of session 'first-visit'"
    )


def test_a_table_in_a_pipe_is_whole(cli: Cli) -> None:
    """Shells of agents export COLUMNS."""
    cli("fact", "add", "--agent", "mira", "--content", LONG, "--allow-long").ok()
    assert LONG in cli("fact", "list", "--agent", "mira", columns=60).ok().out


def test_long_texts_break_between_words_on_a_terminal(cli: Cli) -> None:
    (added,) = cli.json("fact", "add", "--agent", "mira", "--content", LONG, "--allow-long")
    lines = cli.on_terminal("show", added["id"], columns=40).ok().out.splitlines()
    text = lines[lines.index("") + 1 :]
    assert len(text) > 3
    assert all(len(line) <= 40 for line in text)
    assert " ".join(text) == LONG


def test_a_note_breaks_between_words_on_a_terminal(cli: Cli) -> None:
    result = cli.on_terminal("search", "lantern", "--agent", "mira", columns=50).ok()
    note = "no embedding model: searched by words alone; for a local model:"
    assert note in " ".join(result.out.split())
    assert all(len(line) <= 50 for line in result.out.splitlines())


def test_the_names_of_sessions_are_whole_in_80_columns(cli: Cli) -> None:
    sessions = Path(__file__).parents[2] / "examples" / "community" / "sessions.jsonl"
    cli("import", str(sessions), "--add-missing").ok()
    command = ("session", "list", "--agent", "mira", "--no-color")
    listed = cli.on_terminal(*command, columns=80).ok().out
    for name in ("lena-first-visit", "lena-progress", "samira-stewards", "jun-translation"):
        assert name in listed
    assert max(map(len, listed.splitlines())) <= 80


def test_a_setting_shows_its_key_whole_and_its_number_short(shared_cli: Cli) -> None:
    shown = shared_cli("config", "show", "store").ok().out
    assert "store.connect_timeout_seconds" in shown
    assert "5.000" not in shown
