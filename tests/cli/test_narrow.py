"""Main screens on 60 columns, and on terminals that cannot show every character."""

from __future__ import annotations

import io
import json
import re

import pytest

from edenmem.cli.terminal.data import to_json
from edenmem.cli.terminal.output import adapt_stream
from edenmem.text import display_width
from tests.cli.conftest import Cli
from tests.support.commands import every_command

COLUMNS = 60
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
USER = ("--agent", "mira", "--user", "lena")
SCREENS = (
    ("status",),
    ("stats",),
    ("doctor",),
    ("scope", "list"),
    ("doctor", "--list"),
    ("fact", "list", "--agent", "mira", "--since", "1d"),
    ("session", "list"),
    ("log",),
    ("search", "lanterns", *USER, "--explain"),
    ("forget", "--user", "lena", "--dry-run"),
    ("config", "show", "search"),
)


@pytest.mark.parametrize("command", SCREENS, ids=" ".join)
def test_a_screen_fits_60_columns(command: tuple[str, ...], shared_cli: Cli) -> None:
    shown = shared_cli.on_terminal(*command, columns=COLUMNS).out
    for line in _STYLE.sub("", shown).splitlines():
        is_path = "/" in line.split()[-1] if line.split() else False  # cannot be broken
        assert display_width(line) <= COLUMNS or is_path, line


@pytest.mark.slow
def test_help_fits_60_columns(shared_cli: Cli) -> None:
    for words, _ in every_command():
        shown = shared_cli(*words, "--help", columns=COLUMNS).ok().out
        for line in shown.splitlines():
            is_example = re.match(r' *(edenmem |[A-Z_]+=\S+ edenmem |\{"|\[\{|"created)', line)
            assert len(line) <= COLUMNS or is_example or len(line.split()) <= 2, (words, line)


def _encoded(text: str, encoding: str) -> bytes:
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    adapt_stream(stream)
    stream.write(text)
    stream.flush()
    return stream.buffer.getvalue()


def test_drawings_fall_back_to_ascii_and_text_to_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _encoded("─── cut… ü", "ascii") == b"--- cut~ \\xfc"
    assert _encoded("→ … ü", "latin-1") == b"> ~ \xfc"
    assert _encoded("→ … ü", "utf-8") == "→ … ü".encode()
    value = ["→", "\N{WHALE}", "ü", "…"]
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "latin-1"))
    assert json.loads(to_json(value).encode("ascii")) == value
