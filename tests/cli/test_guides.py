"""``edenmem help``: commands and guides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edenmem
from edenmem.cli.commands.help import guide_names
from edenmem.settings.keys import defaults
from tests.cli.conftest import Cli

DOCS = Path(edenmem.__file__).parent / "docs"


def test_help_lists_commands_and_guides(cli: Cli) -> None:
    shown = cli("help").ok().out
    assert "consolidation" in shown
    assert all(name in shown for name in guide_names())
    assert set(guide_names()) == {path.stem for path in DOCS.glob("*.md")}


@pytest.mark.slow
def test_help_fits_the_screen_and_is_paged(cli: Cli, tmp_path: Path) -> None:
    shown = cli("help", columns=60).ok().out
    guides = shown[shown.index("\nGuides:") :]
    assert all(len(line) <= 60 for line in guides.splitlines())
    assert "'edenmem help --guide NAME' if a command has the same name" in " ".join(guides.split())
    pager = {"PAGER": f"cat > {tmp_path}/paged"}
    cli.on_terminal("help", env=pager).ok()
    assert "Guides: " in (tmp_path / "paged").read_text()


def test_help_of_a_command_is_what_its_option_prints(cli: Cli) -> None:
    assert cli("help", "fact", "add").ok().out == cli("fact", "add", "--help").ok().out


def test_a_guide_is_plain_markdown_in_a_pipe(cli: Cli) -> None:
    for name in guide_names():
        source = (DOCS / f"{name}.md").read_text("utf-8")
        shown = cli("help", "--guide", name).ok().out
        assert "<!--" not in shown, name
        assert set(shown.splitlines()) <= set(source.splitlines()), name


def test_a_guide_on_a_terminal_keeps_code_lines_and_names_commands(
    cli: Cli, tmp_path: Path
) -> None:
    cli.on_terminal("help", "tour", env={"PAGER": f"cat > {tmp_path}/paged"}).ok()
    paged = (tmp_path / "paged").read_text()
    assert "models.md" not in paged
    code = [
        line
        for block in (DOCS / "tour.md").read_text("utf-8").split("```")[1::2]
        for line in block.splitlines()[1:]
    ]
    assert any(len(line) > 88 for line in code)
    assert all(line in paged for line in code)


@pytest.mark.slow
def test_a_table_of_a_guide_cuts_no_name(cli: Cli, tmp_path: Path) -> None:
    cli.on_terminal("help", "settings", env={"PAGER": f"cat > {tmp_path}/paged"}).ok()
    paged = (tmp_path / "paged").read_text()
    shown = set(re.sub(r"\x1b\[[0-9;]*m", "", paged).split())
    assert {key.rpartition(".")[2] for key in defaults()} <= shown


def test_an_unknown_name_is_refused_with_the_nearest(cli: Cli) -> None:
    cli("help", "mongdb").fails(3, "did you mean 'mongodb'?")


def test_a_single_setting_is_shown_in_full_on_a_narrow_terminal(cli: Cli) -> None:
    shown = " ".join(cli("config", "show", "embedding.provider", columns=40).ok().out.split())
    assert shown == 'key embedding.provider value "none" origin EDENMEM_EMBEDDING_PROVIDER'
    assert cli.json("config", "show", "embedding.provider")[0]["value"] == "none"
