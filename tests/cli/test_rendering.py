"""Rendering without a process: tables, JSON, CSV, Markdown, times."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.options import parse_when
from edenmem.cli.commands.search import print_stages
from edenmem.cli.terminal.data import to_data, to_json
from edenmem.cli.terminal.output import Output, OutputFormat
from edenmem.cli.terminal.tables import Column, markdown_table, plain_table, unique_beginnings
from edenmem.engine.reports import ScopeStatus
from edenmem.errors import UsageError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.text import ago, iso
from tests.support.builders import NOW, make_fact
from tests.support.vectors import unit

HEX = st.text("0123456789abcdef", min_size=24, max_size=24)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(HEX, max_size=30))
def test_a_shortened_id_is_a_beginning_of_that_id_alone(ids: list[str]) -> None:
    for full, short in unique_beginnings(ids).items():
        assert 14 <= len(short) <= 24
        assert [one for one in set(ids) if one.startswith(short)] == [full]


def test_ids_that_the_platform_made_in_one_second_are_shown_whole() -> None:
    ids = ["65f3a0c2" + "0" * 15 + end for end in "123"]
    assert unique_beginnings(ids) == {full: full for full in ids}


def test_an_id_is_not_shortened_to_what_its_unlisted_siblings_share() -> None:
    made = [new_id(NOW) for _ in range(50)]
    for full in made:
        short = unique_beginnings([full])[full]
        assert [one for one in made if one.startswith(short)] == [full]


@given(
    st.lists(st.tuples(HEX, TEXT, st.integers()), min_size=1, max_size=8),
)
def test_a_plain_table_has_one_line_a_row(rows: list[tuple[str, str, int]]) -> None:
    columns: list[Column[tuple[str, str, int]]] = [
        Column("id", lambda row: row[0], "id"),
        Column("count", lambda row: row[2] % 1000, "number"),
        Column("content", lambda row: row[1], "text"),
    ]
    lines = plain_table(columns, rows)
    assert len(lines) == len(rows) + 1
    for line in lines:
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", line)


def test_an_id_of_another_program_is_shown_like_any_text() -> None:
    columns: list[Column[str]] = [Column("id", str, "id")]
    assert plain_table(columns, ["\x1b]0;title\x07\n\u202eabc"])[1] == "␛]0;title␇ \\u202eab"


def test_wide_characters_keep_the_columns_in_line() -> None:
    columns: list[Column[tuple[str, str]]] = [
        Column("name", lambda row: row[0]),
        Column("next", lambda row: row[1]),
    ]
    lines = plain_table(columns, [("漢字", "a"), ("abcd", "b")])
    assert lines[1] == "漢字  a"
    assert lines[2] == "abcd  b"


@pytest.mark.slow
@given(st.dictionaries(TEXT, TEXT | st.integers(-(2**53), 2**53) | st.none(), max_size=5))
def test_json_is_exact_and_harmless(value: dict[str, object]) -> None:
    for indent in (0, 2):
        written = to_json(value, indent=indent)
        assert json.loads(written) == value
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", written)


def test_json_of_a_byte_that_is_no_text() -> None:
    for indent in (0, 2):
        assert json.loads(to_json({"path": "a\udcff"}, indent=indent)) == {"path": "a\udcff"}


def test_a_fact_in_json_has_its_stored_fields_and_no_vector() -> None:
    fact = make_fact(Scope.user("a" * 24, "b" * 24), embedding=unit(3, 4), embedding_model="m")
    data = to_data(fact)
    assert data["id"] == fact.id
    assert data["formed_at"] == "2026-03-14T12:00:00Z"
    assert (data["scope"], data["user_id"], data["group_id"]) == ("user", "b" * 24, None)
    assert "embedding" not in data
    assert to_data(fact, vectors=True)["embedding"] == pytest.approx([0.6, 0.8])


def test_a_scope_in_a_report_is_spelled_out_as_in_documents() -> None:
    status = ScopeStatus(
        scope=Scope.group("a" * 24, "choir"),
        facts=0,
        pending=0,
        consolidate_at=1,
        due=False,
        active=True,
        version=0,
        words=0,
        word_limit=1,
    )
    data = to_data(status)
    assert (data["scope"], data["agent_id"], data["group_id"]) == ("group", "a" * 24, "choir")
    assert data["user_id"] is None


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "  =1+1")


def test_csv_runs_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(OutputFormat.CSV)
    out.listing([{"text": text, "n": -1, "list": ["=1"]} for text in FORMULAS], [], data=dict)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["text"] for row in rows] == ["'" + text for text in FORMULAS]
    assert {row["n"] for row in rows} == {"-1"}
    assert {row["list"] for row in rows} == {'["=1"]'}


def test_markdown_is_not_read_as_markup() -> None:
    table = markdown_table([Column("x", lambda row: row)], ["a|b `c` *d* [e](f) <g> \n# h"])
    cell = table.splitlines()[-1].strip("| ")
    assert cell == r"a\|b \`c\` \*d\* \[e\](f) \<g\> \# h"


@pytest.mark.parametrize("format", [OutputFormat.JSON, OutputFormat.JSONL])
def test_a_list_that_was_cut_says_so_on_stderr(
    format: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    Output(format).listing([{"n": n} for n in range(4)], [], data=dict, limit=3)
    captured = capsys.readouterr()
    assert "showing the first 3" in captured.err
    assert captured.out.count('"n"') == 3


def test_a_list_that_just_fits_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Output(OutputFormat.JSON).listing([{"n": n} for n in range(3)], [], data=dict, limit=3)
    assert capsys.readouterr().err == ""


def test_an_empty_list_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    Output(OutputFormat.JSON).listing([], [])
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-03-01", datetime(2025, 3, 1, tzinfo=UTC)),
        ("2025-03-01T14:30", datetime(2025, 3, 1, 14, 30, tzinfo=UTC)),
        ("2025-03-01 14:30:05Z", datetime(2025, 3, 1, 14, 30, 5, tzinfo=UTC)),
        ("2025-03-01T14:30+02:00", datetime(2025, 3, 1, 12, 30, tzinfo=UTC)),
        ("7d", NOW - timedelta(days=7)),
        ("2h ago", NOW - timedelta(hours=2)),
        ("30m", NOW - timedelta(minutes=30)),
        ("6mo", NOW - timedelta(days=180)),
    ],
)
def test_times_as_people_write_them(text: str, moment: datetime) -> None:
    assert parse_when(text, "--since", now=NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "2025-13-01", "7 parsecs", "999999y", "-3d", "٣d"])
def test_a_wrong_time_shows_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_when(text, "--since", now=NOW)
    assert "2025-03-01T14:30" in (caught.value.hint or "")


@pytest.mark.slow
@given(st.text())
def test_any_text_is_a_time_or_a_usage_error(text: str) -> None:
    try:
        moment = parse_when(text, "--since")
    except UsageError:
        return
    assert moment is not None
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        (timedelta(seconds=20), "now"),
        (timedelta(minutes=5), "5m ago"),
        (timedelta(hours=30), "1d ago"),
        (timedelta(days=800), "2y ago"),
        (-timedelta(minutes=5), "in 5m"),
    ],
)
def test_ago(delta: timedelta, said: str) -> None:
    assert ago(NOW - delta, NOW) == said
    assert iso(NOW) == "2026-03-14T12:00:00Z"


def test_the_sum_of_three_lists_is_shown_whole_on_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = Invocation()
    run.format = OutputFormat.TABLE
    lists = {"semantic": {"rank": 1, "score": 0.562, "threshold": 0.55, "normalized": 1.0}}
    sums = {"semantic": 0.5, "text": 0.25, "source": 0.125}
    print_stages(run, lists | {"fusion": {"rank": 1, "score": 0.875, "parts": sums}})
    shown = capsys.readouterr().out
    assert shown.endswith("\nfusion: semantic 0.500 + text 0.250 + source 0.125\n")
    assert "…" not in shown
