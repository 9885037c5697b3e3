"""``edenmem browse`` where it cannot run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from edenmem.cli.app.root import run
from edenmem.cli.commands import show
from edenmem.settings.installation import install_hint


def test_without_textual_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "find_spec", lambda name: None)
    assert run(["browse"]) == 2
    assert install_hint("ui") in capsys.readouterr().err


def test_without_a_terminal_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["browse"]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def test_a_store_that_is_not_there_ends_the_command_before_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(show, "sys", terminal)
    monkeypatch.setattr(show, "person_is_there", lambda: True)
    assert run(["browse", "--uri", f"sqlite:///{tmp_path / 'none.db'}"]) == 5
    captured = capsys.readouterr()
    assert "no edenmem database" in captured.err
    assert captured.out == ""
