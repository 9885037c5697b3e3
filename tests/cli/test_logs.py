"""``-v``, ``-vv`` and ``--log-format``: what is done, on stderr, without what was said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

COMMUNITY = Path(__file__).parents[2] / "examples" / "community"
SCRIPTED = [
    *("--set", "llm.provider=replay", "--set", f"llm.replay={COMMUNITY / 'answers.jsonl'}"),
    *("--set", "formation.dedup=false"),
]


@pytest.fixture
def town(tmp_path: Path) -> Cli:
    """The example's conversations, of which nothing is formed yet."""
    made = Cli(f"sqlite:///{tmp_path}/town.db", tmp_path)
    made("init", "--yes").ok()
    made("import", str(COMMUNITY / "sessions.jsonl"), "--add-missing").ok()
    return made


def test_verbosity_adds_what_was_done_and_no_content(town: Cli) -> None:
    assert "edenmem.formation" not in town("form", "lena-first-visit", *SCRIPTED).ok().err
    told = town("form", "lena-progress", "-v", *SCRIPTED).ok().err
    assert "info: edenmem.formation: done session=" in told
    assert "outcome=applied" in told
    assert not {"lantern", "glue", "OP-7731"} & set(told.replace("=", " ").split())
    found = town("search", "glue", "--agent", "mira", "-vv", "--recipe", "text").ok()
    assert "debug: edenmem.search: done recipe=text queries=1" in found.err
    assert "glue" not in found.err


@pytest.mark.slow
def test_a_cold_run_writes_json_lines(town: Cli) -> None:
    done = town("cold", "run", "--log-format", "json", *SCRIPTED)
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warning"}
    formations = [line for line in lines if line["logger"] == "edenmem.formation"]
    assert len(formations) >= 10
    assert sum(line["facts_added"] for line in formations) > 20
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_an_unknown_format_is_refused(town: Cli) -> None:
    town("status", "--log-format", "xml").fails(2, "--log-format takes one of text, json")
