"""The words for invalid input."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from edenmem.errors import InputError, InvalidLines
from edenmem.invalid import explain_json, explain_value, nearest_word


class _Inner(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=3)]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    share: float = 0.5
    flag: bool = False
    at: datetime | None = None
    kind: Literal["a", "b"] = "a"
    either: str | list[str] | None = None
    several: Annotated[list[str], Meta(max_length=1)] = msgspec.field(default_factory=list)
    inner: list[_Inner] = msgspec.field(default_factory=list)
    numbers: dict[str, int] = msgspec.field(default_factory=dict)
    data: bytes = b""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"text": 1}, "text must be text"),
        ({"count": "1"}, "count must be a whole number"),
        ({"count": 0}, "count must be a whole number of at least 1"),
        ({"count": 10}, "count must be a whole number of at most 9"),
        ({"share": "x"}, "share must be a number"),
        ({"flag": 1}, "flag must be true or false"),
        ({"at": "now"}, "at must be a time in ISO 8601, such as 2026-01-31T09:30:00Z"),
        ({"at": []}, "at must be a time in ISO 8601, such as 2026-01-31T09:30:00Z"),
        ({"kind": "c"}, "kind is unknown: 'c'"),
        ({"either": 1}, "either must be text or a list"),
        ({"several": ["a", "b"]}, "several must have at most 1 values"),
        ({"inner": {}}, "inner must be a list"),
        ({"inner": [{}]}, "inner[0].name is missing"),
        ({"inner": [{"name": ""}]}, "inner[0].name must not be empty"),
        ({"inner": [{"name": "long"}]}, "inner[0].name must have at most 3 characters"),
        ({"inner": [[]]}, "inner[0] must be a JSON object"),
        ({"numbers": {"a": "b"}}, "numbers[...] must be a whole number"),
        ({"data": "?"}, "data is invalid"),
        ({"txt": ""}, "txt is not a known field"),
        ([], "the line must be a JSON object"),
    ],
)
def test_an_invalid_value_is_explained_in_plain_words(given: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, _Row)
    assert explain_value(caught.value) == words


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": ', "the line is not valid JSON (it ends early)"),
        (b"{nope}", "the line is not valid JSON (column 2)"),
        (b"\xff", "the line is not valid UTF-8 (byte 1)"),
        (b"[" * 100_000, "the line is nested too deeply"),
        (b"1" * 5000, "the line is not valid JSON"),
    ],
)
def test_invalid_json_is_explained_with_its_place(data: bytes, words: str) -> None:
    assert explain_json(data) == words


def test_errors_in_lines_name_the_file_once_it_is_known() -> None:
    error = InputError("query must be text", line=3)
    assert str(error) == error.message == "line 3: query must be text"
    error.name_file("q.jsonl")
    assert str(error) == error.message == "q.jsonl:3: query must be text"

    several = InvalidLines([(1, "type is missing"), (4, "id is missing")], 3)
    several.name_file("f.jsonl")
    assert several.message.splitlines() == [
        "3 invalid lines:",
        "  f.jsonl:1: type is missing",
        "  f.jsonl:4: id is missing",
        "  and 1 more",
    ]
    assert InvalidLines([(2, "type is missing")], 1).message == "line 2: type is missing"
    entry = InvalidLines([(2, "type is missing")], 1, unit="entry")
    entry.name_file("m.json")
    assert entry.message == "m.json: entry 2: type is missing"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("serch", "search"),
        ("SEARCH", "search"),
        ("fcat", "fact"),
        ("--agnt", "--agent"),
        ("--wordlimit", "--word-limit"),
        ("consolidatoin", "consolidation"),
        ("reflect", "reflection"),
        ("con", None),  # consolidate, consolidation
        ("completion", None),
        ("EDENMEM_T", None),
        ("--fort", None),  # --form or --fork
        ("ex", None),
        ("", None),
    ],
)
def test_the_nearest_word_is_given_only_if_it_is_clearly_the_best(
    given: str, meant: str | None
) -> None:
    commands = ("search", "serve", "user", "fact", "consolidate", "consolidation", "reflection")
    options = ("--agent", "--account", "--until", "--word-limit", "--format", "--form", "--fork")
    assert nearest_word(given, (*commands, *options, "EDENMEM_ACTOR", "e")) == meant
