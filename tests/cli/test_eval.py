"""``edenmem eval``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, controls

WHALES, WALK = "f" * 23 + "1", "The walk starts at 17:30."


def write(folder: Path, *rows: dict[str, Any] | str) -> str:
    """A file of queries; its path."""
    file = folder / "queries.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def row(query: str, *relevant: str, **fields: str) -> dict[str, Any]:
    return {"query": query, "agent": "mira", "relevant": list(relevant), **fields}


GOOD = (
    row("whale lanterns", WHALES, user="lena", kind="exact"),
    row("when does the walk start", WALK, kind="time"),
    row("zeppelin", kind="nothing"),
)


def test_a_table_for_a_person(shared_cli: Cli, tmp_path: Path) -> None:
    result = shared_cli("eval", write(tmp_path, *GOOD)).ok()
    header, figures, *_ = (line.split() for line in result.out.splitlines())
    assert header == ["recipe", "kind", "recall@10", "MRR@10", "nDCG@10", "queries", "silent"]
    assert figures == ["text", "all", "1.000", "1.000", "1.000", "2", "1", "of", "1"]
    assert "no embedding model" in result.err
    assert "2 answerable queries, 1 unanswerable" in result.err


def test_data_for_a_program(shared_cli: Cli, tmp_path: Path) -> None:
    data, *_ = shared_cli.json("eval", write(tmp_path, *GOOD), "--recipe", "text", "--top-k", "3")
    assert data == {
        "recipe": "text",
        "kind": "",
        "queries": 2,
        "unanswerable": 1,
        "silent": 1,
        "recall": 1.0,
        "mrr": 1.0,
        "ndcg": 1.0,
        "top_k": 3,
    }


def test_kinds_are_told_apart(shared_cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path, *GOOD)
    data = shared_cli.json("eval", file)
    assert [(one["kind"], one["queries"], one["ndcg"]) for one in data] == [
        ("", 2, 1.0),
        ("exact", 1, 1.0),
        ("time", 1, 1.0),
        ("nothing", 0, None),
    ]
    table = shared_cli("eval", file).ok().out
    assert "nan" not in table
    assert [line.split()[1] for line in table.splitlines()[1:]] == [
        "all",
        "exact",
        "time",
        "nothing",
    ]


def test_from_a_pipe_and_no_access_is_counted(shared_cli: Cli) -> None:
    lines = "\n".join(json.dumps(one) for one in GOOD)
    before = shared_cli.json("show", WHALES)
    shared_cli("eval", "-", input=lines).ok()
    assert shared_cli.json("show", WHALES) == before


def test_labels_that_mean_nothing_are_reported(shared_cli: Cli, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        row("whale lanterns", WHALES, "Nobody said this.", user="lena"),
        row("whale lanterns", WHALES),  # without --user, no user's facts are seen
    )
    result = shared_cli("eval", file).fails(
        1,
        "queries.jsonl:1: no searched fact has the text: 'Nobody said this.'",
        f"queries.jsonl:2: fact is outside the scopes of this line: {WHALES}",
        "1 skipped",
    )
    assert result.out.splitlines()[1].split()[-1] == "1"


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        ("nonsense", 2, "queries.jsonl:2: the line is not valid JSON (column 1)"),
        (
            '{"query": "q", "agent": "nobody", "relevant": []}',
            2,
            "queries.jsonl:2: agent not found",
        ),
        ('{"query": "q", "agent": "mira"}', 2, "queries.jsonl:2: relevant is missing"),
    ],
)
def test_a_bad_line_is_named(
    shared_cli: Cli, tmp_path: Path, bad: str, code: int, says: str
) -> None:
    assert shared_cli("eval", write(tmp_path, GOOD[0], bad)).fails(code, says).out == ""


def test_what_cannot_be_done_is_refused(shared_cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path, *GOOD)
    shared_cli("eval", str(tmp_path / "none.jsonl")).fails(3, "no such file")
    shared_cli("eval", file, "--recipe", "rrf").fails(2, "needs an embedding model")


@pytest.mark.slow
def test_hostile_queries_are_harmless(shared_cli: Cli, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\u202e[red]never stored[/red]"
    file = write(tmp_path, row(evil, evil, kind=evil), row("walk", WALK, kind=evil))
    assert not controls(shared_cli.on_terminal("eval", file).fails(1).out)
