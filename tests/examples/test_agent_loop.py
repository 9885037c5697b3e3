"""The example runs as it stands, with scripted answers and without any."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "memory.db")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_remembers_the_first_visit_in_the_second(tmp_path: Path) -> None:
    out = run(EXAMPLES / "agent_loop.py", tmp_path)
    first, second = out.split("=== lena-progress")
    assert "<MemoryContext/>" in first
    assert "Formation applied: 10 messages, " in first
    assert "HOW TO SPEAK WITH LENA" in second.split("\nFormation ")[0]
    assert "OP-7731" in second.split("=== Search")[1]


def test_without_any_answers_it_says_that_nothing_is_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDENMEM_EMBEDDING_PROVIDER", "none")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    (tmp_path / "examples" / "community" / "answers.jsonl").unlink()
    out = run(tmp_path / "examples" / "agent_loop.py", tmp_path)
    assert out.count("No language model is configured, so no memories are formed") == 2
