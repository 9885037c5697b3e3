"""``edenmem stats`` as its users have it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, controls

SECTIONS = (
    "Memory per week",
    "Memory by scope type",
    "Use of facts",
)


@pytest.mark.parametrize("columns", [80, 200])
def test_it_fits_the_screen(shared_cli: Cli, columns: int) -> None:
    in_pipe = shared_cli("stats", columns=columns).ok().out
    on_screen = shared_cli.on_terminal("stats", columns=columns).ok().out
    for shown in (in_pipe, on_screen):
        assert [title for title in SECTIONS if title not in shown] == []
        assert not controls(shown)


def test_it_is_data_too(shared_cli: Cli) -> None:
    (data,) = shared_cli.json("stats", "--since", "8w")
    assert len(data["weeks"]) in (8, 9)
    assert {kind["kind"]: kind["facts"] for kind in data["kinds"]}["user"] == 3
    assert data["use"]["facts"] == 5


def test_one_agents_memory_alone(shared_cli: Cli) -> None:
    (data,) = shared_cli.json("stats", "--agent", "otto")
    assert data["use"]["facts"] == 0
    assert shared_cli("stats", "--agent", "nobody").code == 3
