"""Values that nobody's MongoDB wrote: one document of them never ends the run for all others."""

from __future__ import annotations

import os
from pathlib import Path

import bson
import pytest

from edenmem.errors import InputError
from edenmem.models.v1 import Outcome, V1Item, V1ProblemKind
from tests.support.v1_plans import items_of
from tests.support.v1_world import MIRA, oid

_ID = '"_id": {"$oid": "%s"}, "agent_id": {"$oid": "%s"}'
_HOSTILE = _ID % (oid(101), MIRA) + ', "memory_type": "fact"'


def _nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def _planned(folder: Path, fields: str) -> list[V1Item]:
    """The items of a shard that lists two facts, the first of which has these fields."""
    listed = f'[{{"$oid": "{oid(101)}"}}, {{"$oid": "{oid(102)}"}}]'
    (folder / "memory_agent.json").write_text(
        f'{{{_ID % (oid(103), MIRA)}, "shard_name": "lore", "facts": {listed}}}\n', "utf-8"
    )
    (folder / "memory_sessions.json").write_text(
        f"{{{_HOSTILE}, {fields}}}\n"
        f'{{{_ID % (oid(102), MIRA)}, "memory_type": "fact", "content": "The tide turns."}}\n',
        "utf-8",
    )
    return items_of(folder)


def _facts(items: list[V1Item]) -> list[str]:
    return [item.fact.content for item in items if item.fact]


@pytest.mark.parametrize(
    "value",
    [
        '{"$numberDecimal": "many"}',
        '{"$binary": {}}',
        '{"$timestamp": {}}',
        '{"$date": "0001-01-01T00:00:00+14:00"}',
        '"\\ud800"',
        '{"\\udc00": ["\\ud800"]}',
        "NaN",
        "9" * 40,
    ],
)
def test_unknown_fields_are_kept_whatever_is_in_them(tmp_path: Path, value: str) -> None:
    items = _planned(tmp_path, f'"content": "The boat is red.", "mood": {value}')
    assert sorted(_facts(items)) == ["The boat is red.", "The tide turns."]
    (kept,) = [item.extra for item in items if "mood" in item.extra]
    kept.encode()  # every store can hold it


@pytest.mark.parametrize("levels", [900, 100_000])
def test_what_is_nested_too_deeply_is_bad_and_the_rest_is_moved(
    tmp_path: Path, levels: int
) -> None:
    for field in ("content", "mood"):
        items = _planned(tmp_path, f'"{field}": {_nested(levels)}')
        assert _facts(items) == ["The tide turns."]
        (bad,) = [item for item in items if item.outcome is Outcome.BAD]
        assert bad.problems[0].kind is V1ProblemKind.UNREADABLE
        assert "nested too deeply" in bad.problems[0].detail


def test_a_number_of_thousands_of_digits_is_bad_and_the_rest_is_moved(tmp_path: Path) -> None:
    items = _planned(tmp_path, f'"content": "The boat is red.", "mood": {"9" * 5000}')
    assert _facts(items) == ["The tide turns."]
    assert [item.outcome for item in items].count(Outcome.BAD) == 1


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_beyond_all_years_is_missing(tmp_path: Path, time: str) -> None:
    for value in (f'"{time}"', f'{{"$date": "{time}"}}'):
        items = _planned(tmp_path, f'"content": "The boat is red.", "createdAt": {value}')
        kinds = {problem.kind for item in items for problem in item.problems}
        assert {V1ProblemKind.WRONG_SHAPE, V1ProblemKind.TIME_MISSING} <= kinds
        assert len(_facts(items)) == 2


def test_a_type_that_is_no_text(tmp_path: Path) -> None:
    items = _planned(tmp_path, '"content": "The boat is red.", "memory_type": "fact\\ud800"')
    assert "The tide turns." in _facts(items)


def test_bson_nested_too_deeply_is_bad_and_the_rest_is_moved(tmp_path: Path) -> None:
    inner = b"\x05\0\0\0\0"
    for _ in range(900):
        element = b"\x03a\0" + inner
        inner = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
    body = b"\x07_id\0" + oid(101).binary + b"\x03content\0" + inner
    hostile = (len(body) + 5).to_bytes(4, "little") + body + b"\0"
    fine = bson.encode({"_id": oid(102), "agent_id": MIRA, "memory_type": "fact", "content": "x"})
    (tmp_path / "memory_sessions.bson").write_bytes(hostile + fine)
    dispositions = {item.sources[0].id: item.outcome for item in items_of(tmp_path)}
    assert dispositions == {
        str(oid(101)): Outcome.BAD,
        str(oid(102)): Outcome.LEFT_BEHIND,
    }


def test_a_link_to_nothing_is_no_empty_collection(tmp_path: Path) -> None:
    fine = bson.encode({"_id": oid(102), "agent_id": MIRA, "memory_type": "fact", "content": "x"})
    (tmp_path / "memory_sessions.bson").write_bytes(fine)
    (tmp_path / "memory_user.bson").symlink_to(tmp_path / "elsewhere.bson")
    with pytest.raises(InputError, match=r"not a file, or a broken link: .*memory_user\.bson"):
        items_of(tmp_path)


def test_a_pipe_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memory_user.json")
    with pytest.raises(InputError, match="not a file"):
        items_of(tmp_path / "memory_user.json")
