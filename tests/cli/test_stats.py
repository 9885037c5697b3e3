"""``edenmem stats`` as its users have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edenmem.cli.commands.start.stats import draw_stacked_bars
from edenmem.text import display_width
from tests.cli.conftest import Cli, Inside, controls

SECTIONS = (
    "Memory per week",
    "Memory by scope type",
    "Use of facts",
    "Longest texts",
    "Oldest pending reflections",
)


@pytest.mark.parametrize("columns", [80, 200])
def test_it_fits_the_screen(shared_cli: Cli, columns: int) -> None:
    in_pipe = shared_cli("stats", columns=columns).ok().out
    on_screen = shared_cli.on_terminal("stats", columns=columns).ok().out
    for shown in (in_pipe, on_screen):
        assert [title for title in SECTIONS if title not in shown] == []
        assert "█ facts   ░ reflections" in shown
        assert not controls(shown)
    assert max(map(display_width, in_pipe.splitlines())) <= columns


def test_it_is_data_too(inside: Inside) -> None:
    (data,) = inside.json("stats", "--since", "8w", "--limit", "2")
    assert len(data["weeks"]) in (8, 9)
    assert {kind["kind"]: kind["facts"] for kind in data["kinds"]}["user"] == 3
    assert data["use"]["facts"] == 5
    assert len(data["buffers"]) == 2
    assert data["texts"][0]["word_limit"] == 300


def test_one_agents_memory_alone(inside: Inside) -> None:
    (data,) = inside.json("stats", "--agent", "otto")
    assert data["use"]["facts"] == 0
    assert inside("stats", "--agent", "nobody").code == 3


def test_a_page_is_written_whole_for_its_owner_and_replaces_nothing_unasked(
    shared_cli: Cli, tmp_path: Path
) -> None:
    page = tmp_path / "memory.html"
    shared_cli("stats", "--html", str(page)).ok()
    first = page.read_text()
    assert first.startswith("<!DOCTYPE html>")
    assert "lena" in first
    assert page.stat().st_mode & 0o777 == 0o600
    refused = shared_cli("stats", "--html", str(page))
    assert refused.code == 4
    assert "--force" in refused.err
    shared_cli("stats", "--html", str(page), "--force").ok()
    missing = shared_cli("stats", "--html", str(tmp_path / "no" / "page.html"))
    assert missing.code == 2
    assert "cannot be written" in missing.err
    assert [path.name for path in tmp_path.glob("*memory.html*")] == ["memory.html"]


def test_bars_have_the_height_of_their_numbers() -> None:
    drawn = draw_stacked_bars(["a", "b"], {"x": [1, 4], "y": [1, 4]}, width=40, height=10)
    lines = drawn.splitlines()
    marks = [sum(line.count(mark) for line in lines[:-1]) for mark in "█░"]
    assert all(marks)
    assert max(map(len, lines)) <= 40
    assert "\x1b" not in drawn


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_newest_week_has_its_label_and_the_others_even_distances(width: int) -> None:
    weeks = [f"{8 + number // 4:02}-{number % 4 * 7 + 1:02}" for number in range(13)]
    drawn = draw_stacked_bars(weeks, {"x": [1] * 13, "y": [1] * 13}, width=width, height=8)
    shown = drawn.splitlines()[-2].split()
    assert shown == weeks[::2]
