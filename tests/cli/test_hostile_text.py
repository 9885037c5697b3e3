"""Text from users and models on screens: shown, never obeyed (known failures 33 and 41).

Each reading command runs on a store in which names, facts, reflections, texts and messages hold
markup, escape sequences, directional overrides, XML, and 100 KB on one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import HOSTILE, Cli, controls

pytestmark = pytest.mark.slow

USER = ("--agent", "mira", "--user", "lena")
READING = [
    ("agent", "list"),
    ("show", "mira"),
    ("user", "list"),
    ("show", "lena"),
    ("session", "list"),
    ("show", "first-visit"),
    ("scope", "list"),
    ("scope", "show", "--agent", "mira", "--user", "lena"),
    ("scope", "policy", "--agent", "mira", "--user", "lena"),
    ("fact", "list", "--agent", "mira", "--user", "lena"),
    ("show", "f" * 23 + "2"),
    ("show", "f" * 23 + "3"),
    ("history", "f" * 23 + "2"),
    ("reflection", "list", "--agent", "mira"),
    ("show", "e" * 24),
    ("consolidation", "list"),
    ("consolidation", "show", "--agent", "mira", "--user", "lena"),
    ("history", "mira/user:lena"),
    ("consolidation", "diff", "--agent", "mira", "--user", "lena"),
    ("search", "loud", "whale", "--agent", "mira", "--user", "lena", "--explain", "--no-track"),
    ("context", "first-visit"),
    ("status",),
]


def test_in_a_pipe_no_text_is_obeyed(shared_cli: Cli, prepared: Path) -> None:
    for command in READING:
        result = shared_cli(*command).ok()
        assert result.out, command
        if command[0] != "context":  # its result is the XML itself, which stays exact in a pipe
            assert not controls(result.out), command
        assert not controls(result.err), command


#: One for each way to print: a table, fields and a text, messages, hits, a diff, a document.
PRINTED = [
    ("fact", "list", *USER),
    ("show", "mira"),
    ("show", "first-visit"),
    ("search", "whale", *USER),
    ("consolidation", "diff", *USER),
    ("context", "first-visit"),
]


@pytest.mark.parametrize("command", PRINTED, ids=lambda command: " ".join(command[:2]))
def test_on_a_terminal_no_text_is_obeyed(command: tuple[str, ...], shared_cli: Cli) -> None:
    columns = 80 if PRINTED.index(command) % 2 else 200
    result = shared_cli.on_terminal(*command, columns=columns)
    assert result.code == 0, result.out
    assert not controls(result.out)


@pytest.mark.parametrize("on_terminal", [False, True])
def test_markup_is_shown_as_it_was_written(on_terminal: bool, shared_cli: Cli) -> None:
    command = ("fact", "list", "--agent", "mira", "--user", "lena")
    runner = shared_cli.on_terminal if on_terminal else shared_cli
    shown = runner(*command, columns=200).out
    assert "[/red] [bold]loud[/bold] :smile: ␛]0;owned␇" in shown
    assert "endless endless" in shown


def test_json_is_valid_exact_and_the_same_twice(shared_cli: Cli) -> None:
    for command in READING:
        first = shared_cli(*command, "--format", "json").ok()
        shows_one = "show" in command[:2] or command[0] in ("context", "status")
        shows_one |= command[1] == "policy" if len(command) > 1 else False
        assert isinstance(first.data, dict if shows_one else list), command
        assert all(isinstance(row, dict) for row in first.rows), command
        assert not controls(first.out), command
        again = shared_cli(*command, "--format", "json").ok()
        assert first.out == again.out or command[0] in ("status", "context"), command
        lines = shared_cli(*command, "--format", "jsonl").ok().out.splitlines()
        assert len(lines) == len(first.rows), command
        if first.out == again.out:
            assert [json.loads(line) for line in lines] == first.rows, command


@pytest.mark.parametrize("format", ["markdown", "csv"])
def test_no_other_format_is_refused(format: str, shared_cli: Cli) -> None:
    for command in READING:
        result = shared_cli(*command, "--format", format).ok()
        assert result.out, command
        if format == "markdown" and command[0] != "context":
            assert not controls(result.out), command


def test_json_keeps_every_character_of_a_fact(shared_cli: Cli) -> None:
    (fact,) = shared_cli.json("show", "f" * 23 + "2")
    assert fact["content"] == HOSTILE


def test_a_markdown_table_has_one_line_for_each_fact(shared_cli: Cli) -> None:
    command = ("fact", "list", "--agent", "mira", "--user", "lena")
    out = shared_cli(*command, "--format", "markdown").ok().out
    assert len(out.splitlines()) == 2 + len(shared_cli.json(*command))
    assert not controls(out)
    assert r"\[/red\]" in out


def test_the_context_is_well_formed_whatever_was_stored(shared_cli: Cli) -> None:
    result = shared_cli("context", "first-visit", "--refresh").ok()
    root = ElementTree.fromstring(result.out)
    assert root.tag == "MemoryContext"
    assert not [element for element in root.iter() if element.tag == "System"]
    assert "tokens" in result.err


def test_hostile_words_of_the_command_line_are_not_obeyed(shared_cli: Cli) -> None:
    for command in (
        ("show", "\x1b]0;x\x07[/red]"),
        ("search", "\x1b[2J", "--agent", "\x1b[31m"),
        ("\x1b[31mfact",),
        ("fact", "list", "--\x1b[31m"),
        ("fact", "list", "--since", "\x1b[31m"),
    ):
        result = shared_cli(*command)
        assert result.code in (2, 3)
        assert not controls(result.err)
