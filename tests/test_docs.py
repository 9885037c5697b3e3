"""The README is true: what is made from the code is up to date, and what it says to type runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edenmem.settings.load import load_settings
from tests.support import readme


@pytest.mark.parametrize("name", ["commands", "exit codes"])
def test_parts_that_are_made_from_the_code_are_up_to_date(name: str) -> None:
    assert readme.made(name) == readme.MAKERS[name](), "run: python -m tests.support.readme"


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows() -> None:
    """But for ids, times and the numbers that come with them."""

    def skeleton(text: str) -> list[str]:
        return [line[:24] for line in text.splitlines() if line[:1].isdigit() and ". " in line[:4]]

    shown, printed = readme.made("demo"), readme.demo_output()
    assert skeleton(shown) == skeleton(printed)
    assert len(skeleton(shown)) >= 8


@pytest.fixture
def person(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has edenmem on the path and nothing configured."""
    binaries = str(Path(sys.executable).parent)
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))},
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "COLUMNS": "80",
    }


@pytest.mark.slow
def test_the_tour_runs_from_first_to_last(tmp_path: Path, person: dict[str, str]) -> None:
    (tmp_path / "examples").symlink_to(readme.ROOT / "examples")
    tour = [block for block in readme.blocks("sh") if block.startswith("edenmem ")]
    assert len(tour) >= 5
    program = next(block for block in readme.blocks("python") if "MemoryService" in block)
    script = "set -euo pipefail\n" + "".join(tour) + f"python - <<'PROGRAM'\n{program}PROGRAM\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=person,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "OP-7731" in done.stdout
    assert "moved by the police" in done.stdout or "18:00" in done.stdout
    assert "[HOW TO SPEAK WITH LENA]" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_configuration_shown_is_one_that_loads(tmp_path: Path) -> None:
    (block,) = readme.blocks("toml")
    assert tomllib.loads(block)
    file = tmp_path / "edenmem.toml"
    file.write_text(block)
    plain = load_settings(config=file, environ={}, cwd=tmp_path)
    laptop = load_settings(config=file, profile="laptop", environ={}, cwd=tmp_path)
    assert plain.settings.store.uri.startswith("mongodb://")
    assert laptop.settings.store.uri.endswith("memory.db")
    assert plain.settings.scopes.user.word_limit == 400
    assert plain.settings.scopes.user.consolidate_at == 4


def test_the_gate_runs_the_line_that_the_readme_gives() -> None:
    assert "-m pytest" in readme.command("tests")
    assert "edenmem demo" in readme.command("demo")
    assert "command: tests" in (readme.ROOT / ".ci" / "run").read_text()


def test_each_promise_of_security_names_a_test_that_is_there() -> None:
    text = (readme.ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) >= 20
    for file, name in named:
        source = (readme.ROOT / file).read_text()
        assert re.search(rf"def {name}\(", source), f"{file} has no {name}"
    promises = text.split("## Promises")[1].split("## Dependencies")[0]
    for promise in promises.split("\n\n**")[1:]:
        assert "::test_" in promise, promise.splitlines()[0]
