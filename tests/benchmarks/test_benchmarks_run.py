"""The benchmarks run, and both sides of each come to the same results. No time is asserted."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as runner
from tests.benchmarks import growth, plain
from tests.benchmarks.measure import Bench, Row
from tests.benchmarks.subjects import ON_REQUEST, SUBJECTS
from tests.benchmarks.world import World

pytestmark = pytest.mark.exhaustive

_SIZE = 200


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"), _SIZE, effort=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SUBJECTS if name not in ON_REQUEST])
def test_a_subject_gives_figures_and_right_results(name: str, bench: Bench) -> None:
    rows = SUBJECTS[name](bench)
    assert rows
    for row in rows:
        assert math.isfinite(row.figure), row.subject
        assert row.figure > 0 or row.unit == "MiB", row.subject
        assert row.agrees, row.subject
        assert row.baseline or row.unit == "calls", row.subject
        assert row.unit == "calls" or row.baseline_figure is not None


def test_an_unknown_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "colour"])
    with pytest.raises(SystemExit, match="2"):
        runner.main()
    assert "start-up, search" in capsys.readouterr().err


def test_the_runner_prints_a_table_and_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["disk", "--size", "50", "--markdown", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    runner.main()
    printed = capsys.readouterr().out
    assert "| size on disk, 50 facts" in printed
    assert "SQLite" in printed
    assert not list(tmp_path.iterdir())


def test_growth_is_told_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(size: int) -> list[Row]:
        subjects = [("hybrid search, warm", "ms p50"), ("hybrid search, warm", "ms p95")]
        subjects += [("hybrid search, new process", "ms"), ("size on disk", "MiB")]
        subjects += [("recall@10", "share")]
        made = [
            Row(f"{subject}, {size:,} facts", unit, size / 100, who, size / 50)
            for subject, unit in subjects
            for who in ("LanceDB", "a script")
        ]
        return [*made, Row(f"hybrid search, warm, {size:,}, accesses counted", "ms p50", 1e9)]

    kept, drawn = tmp_path / "growth.json", tmp_path / "growth.svg"
    measured = {str(size): growth.figures(rows(size)) for size in (1000, 10_000)}
    kept.write_text(json.dumps(measured))
    growth.main(["--sizes", "1000,10000", "--json", str(kept)])
    told = capsys.readouterr().out
    assert json.loads(kept.read_text()) == measured  # nothing is measured twice
    lines = [line for line in told.splitlines() if "warm, ms p50" in line]
    assert [line.split("|")[2].strip() for line in lines] == ["edenmem", "LanceDB", "a script"]
    assert [cell.strip() for cell in lines[0].split("|")[3:5]] == ["10", "100"]
    pytest.importorskip("matplotlib", reason="the extra `bench` draws")
    growth.main(["--sizes", "1000,10000", "--json", str(kept), "--plot", str(drawn)])
    assert "</svg>" in drawn.read_text()


def test_an_interrupted_build_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the two files, then asked for more facts: both have each fact once."""
    add = plain.add
    calls: list[int] = []

    def killed(connection: sqlite3.Connection, rows: Sequence[plain.Row]) -> None:
        calls.append(len(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        add(connection, rows)

    monkeypatch.setattr("tests.benchmarks.world.BATCH", 20)
    with monkeypatch.context() as patch:
        patch.setattr(plain, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            _ = World(tmp_path, 90, with_vectors=False).edenmem
    world = World(tmp_path, 130, with_vectors=False)
    for path in (world.edenmem, world.plain):
        with closing(sqlite3.connect(path)) as connection:
            counts = connection.execute("SELECT count(*), count(DISTINCT id) FROM facts")
            assert counts.fetchone() == (130, 130)
    with pytest.raises(ValueError, match="already has more than 100"):
        _ = World(tmp_path, 100, with_vectors=False).edenmem
