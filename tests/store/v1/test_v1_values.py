"""The result for each odd value; ``edenmem/docs/migration.md`` has the same table."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import DBRef, Decimal128, Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from edenmem.models.v1 import V1DamageKind, V1Memory, V1Shard, V1UserText
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.store.v1 import documents, streams, values

DOCS = Path(documents.__file__).parents[2] / "docs" / "migration.md"

AGENT, USER, OTHER = (ObjectId(f"{digit}" * 24) for digit in "abc")
ONE, TWO = ObjectId("1" * 24), ObjectId("2" * 24)
WHEN = datetime(2025, 8, 1, 10, 0, tzinfo=UTC)
MILLISECONDS = 1754042400000
SECONDS = 1754042400


def _moment(value: Any) -> tuple[datetime | None, set[Kind]]:
    notes = values.Notes()
    found = values.moment(value, "createdAt", notes)
    return found, {kind for kind, _ in notes.found}


TIMES = [
    (MILLISECONDS, WHEN),
    (SECONDS, WHEN),
    (float(SECONDS), WHEN),
    (Int64(MILLISECONDS), WHEN),
    (Decimal128(str(MILLISECONDS)), WHEN),
    (Timestamp(SECONDS, 1), WHEN),
    (str(MILLISECONDS), WHEN),
    (f" {SECONDS} ", WHEN),
    (f"{SECONDS}.0", WHEN),
    ("2025-08-01T10:00:00Z", WHEN),
    ("2025-08-01T12:00:00+02:00", WHEN),
    ("2025-08-01T10:00:00", WHEN),
    ("2025-08-01 10:00:00.000", WHEN),
    ("2025-08-01", datetime(2025, 8, 1, tzinfo=UTC)),
    ("20250801", datetime(2025, 8, 1, tzinfo=UTC)),
    ({"$date": "2025-08-01T10:00:00Z"}, WHEN),
    ({"$date": MILLISECONDS}, WHEN),
    ({"$date": str(MILLISECONDS)}, WHEN),
    ({"$date": {"$numberLong": str(MILLISECONDS)}}, WHEN),
    ({"$numberLong": str(MILLISECONDS)}, WHEN),
    ({"$date": SECONDS}, datetime(1970, 1, 21, 7, 14, 2, 400000, tzinfo=UTC)),
    (-SECONDS, datetime(1914, 6, 2, 14, 0, tzinfo=UTC)),
    ("0", datetime(1970, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize(("value", "wanted"), TIMES, ids=[str(value) for value, _ in TIMES])
def test_times(value: Any, wanted: datetime) -> None:
    assert _moment(value) == (wanted, {Kind.TIME_AS_TEXT})


@pytest.mark.parametrize(
    "value",
    [
        "yesterday",
        "17540424000000000000",
        10**17,
        float("nan"),
        float("inf"),
        True,
        [],
        {"$date": None},
        {"$date": "soon"},
        {"$numberLong": "many"},
        Decimal128("NaN"),
        DatetimeMS(2**62),
        ObjectId("a" * 24),
    ],
    ids=str,
)
def test_invalid_times(value: Any) -> None:
    assert _moment(value) == (None, {Kind.WRONG_SHAPE})


@pytest.mark.parametrize("value", [None, "", WHEN])
def test_valid_and_missing_times_have_no_notes(value: Any) -> None:
    assert _moment(value) == (value or None, set())


def _read(collection: str, fields: dict[str, Any]) -> Any:
    read = documents.read(collection, {"_id": ONE, "agent_id": AGENT, **fields}, "@1")
    return read.document, read


def test_a_missing_time_is_taken_from_the_id_then_from_other_times() -> None:
    older = ObjectId.from_datetime(WHEN)
    fields = {"content": "x", "last_updated_at": datetime(2026, 1, 1, tzinfo=UTC)}
    document, read = _read("memory_user", {"_id": older, **fields})
    assert document.created_at == WHEN
    assert Kind.TIME_MISSING in {kind for kind, _ in read.notes}
    document, _ = _read("memory_user", {"_id": "no id", **fields})
    assert document.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    document, _ = _read("memory_user", {"_id": "no id"})
    assert document.created_at == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("canonical", [True, False])
def test_extended_json_reads_like_bson(canonical: bool) -> None:
    from io import BytesIO

    from bson import json_util

    whole = {
        "_id": ONE,
        "agent_id": AGENT,
        "user_id": USER,
        "content": "Likes tea.",
        "unabsorbed_memory_ids": [TWO],
        "createdAt": WHEN,
        "last_updated_at": WHEN,
    }
    options = json_util.CANONICAL_JSON_OPTIONS if canonical else json_util.RELAXED_JSON_OPTIONS
    text = json_util.dumps(whole, json_options=options)
    ((_, document),) = streams.documents(BytesIO(text.encode()))
    assert isinstance(document, dict)
    read = documents.read("memory_user", document, "@line 1")
    assert read == documents.read("memory_user", bson.decode(bson.encode(whole)), "@1")


# -- lists of ids --------------------------------------------------------------------------------

ENTRIES = [
    (ONE, ["1" * 24], set()),
    ("1" * 24, ["1" * 24], {Kind.ID_AS_TEXT}),
    (f" {'A' * 24} ", ["a" * 24], {Kind.ID_AS_TEXT}),
    ({"$oid": "1" * 24}, ["1" * 24], {Kind.ID_AS_TEXT}),
    ("lantern", ["lantern"], {Kind.ID_AS_TEXT}),
    (7, ["7"], {Kind.NOT_AN_ID}),
    ([ONE, [TWO]], ["1" * 24, "2" * 24], {Kind.NOT_AN_ID}),
    (None, [], {Kind.NOT_AN_ID}),
    ("", [], {Kind.NOT_AN_ID}),
    (True, [], {Kind.NOT_AN_ID}),
    (WHEN, [], {Kind.NOT_AN_ID}),
    ({"id": ONE}, [], {Kind.NOT_AN_ID}),
]


@pytest.mark.parametrize(("entry", "ids", "said"), ENTRIES, ids=[str(each[0]) for each in ENTRIES])
def test_entries_of_lists(entry: Any, ids: list[str], said: set[Kind]) -> None:
    notes = values.Notes()
    found = values.identifiers([TWO, entry, TWO], "facts", notes)
    assert found == ("2" * 24, *ids, "2" * 24)
    assert {kind for kind, _ in notes.found} == said


def test_entries_that_are_no_ids_are_kept_for_the_log() -> None:
    """Issue 30: facts as text or objects, and references of other forms, are named and kept."""
    odd = ["Likes tea.", {"_id": ONE}, {"id": str(ONE)}, DBRef("memory_sessions", ONE)]
    shard, read = _read("memory_agent", {"facts": [ONE, *odd], "unabsorbed_memory_ids": [TWO]})
    assert shard.facts == ("1" * 24, "Likes tea.")
    kept = json.loads(shard.extra)
    assert kept["facts"][0] == "Likes tea."
    assert (len(kept["facts"]), kept.keys()) == (4, {"facts"})
    assert sum("facts holds a non-ID" in detail for _, detail in read.notes) == 3


def test_only_ids_name_messages() -> None:
    given = [ONE, 7, "lantern", None, [TWO], str(TWO)]
    document, read = _read("memory_sessions", {"source_message_ids": given, "createdAt": WHEN})
    assert document.message_ids == ("1" * 24, "2" * 24, "2" * 24)
    assert Kind.NOT_AN_ID in {kind for kind, _ in read.notes}


def test_an_unknown_related_user_is_kept() -> None:
    for stranger in (7, "mira", {"name": "mira"}, True):
        document, _ = _read("memory_sessions", {"related_users": [stranger], "createdAt": WHEN})
        assert len(document.users) == 1
    document, _ = _read("memory_sessions", {"related_users": [None, ""], "createdAt": WHEN})
    assert document.users == ()


def test_a_list_of_a_million_wrong_entries_says_so_in_a_few_notes() -> None:
    notes = values.Notes()
    found = values.identifiers(list(range(10_000)), "facts", notes)
    assert (len(found), len(notes.found)) == (10_000, 100)


# -- older documents -----------------------------------------------------------------------------


def test_former_names_are_read_like_current_names() -> None:
    user, _ = _read("memory_user", {"user_id": USER, "unabsorbed_directive_ids": [ONE]})
    assert isinstance(user, V1UserText)
    assert (user.pending, user.extra) == (("1" * 24,), "")
    shard, _ = _read(
        "memory_agent",
        {"relevant_facts": [ONE], "fully_formed_memory_shard": "Whales.", "is_active": True},
    )
    assert isinstance(shard, V1Shard)
    assert (shard.facts, shard.assembled, shard.extra) == (("1" * 24,), "Whales.", "")


def test_former_lists_come_first_without_duplicates() -> None:
    both = {"relevant_facts": [TWO, ONE], "facts": [ONE, OTHER, OTHER]}
    shard, _ = _read("memory_agent", both)
    assert shard.facts == tuple(map(str, (TWO, ONE, OTHER, OTHER)))
    text = {"fully_formed_memory": "New.", "fully_formed_memory_shard": "Old."}
    assert _read("memory_agent", text)[0].assembled == "New."
    assert _read("memory_agent", {**text, "fully_formed_memory": None})[0].assembled == "Old."


@pytest.mark.parametrize("value", [None, 1, "true", "True", [], 0, False])
def test_only_true_is_active(value: Any) -> None:
    assert not _read("memory_agent", {"is_active": value})[0].active
    assert not _read("memory_agent", {})[0].active
    assert _read("memory_agent", {"is_active": True})[0].active


def test_the_assembled_text_counts_where_there_is_no_other() -> None:
    served = {"fully_formed_memory": "## Consolidated user memory:\n\nLikes tea."}
    for content in (None, "", "  ", "VERSION: 3\n"):
        document, _ = _read("memory_user", {"user_id": USER, "content": content, **served})
        assert (document.assembled, document.extra) == (served["fully_formed_memory"], "")
    document, _ = _read("memory_user", {"user_id": USER, "content": "Likes tea.", **served})
    assert (document.assembled, document.extra) == ("", "")
    document, _ = _read("memory_user", {"user_id": USER, "content": "Likes coffee.", **served})
    assert document.assembled == ""
    assert "Likes tea." in document.extra, "what only the assembled text holds goes to history"


@pytest.mark.parametrize(
    "line",
    [
        "-- Total word count: 1,203 --",
        "-- Total word count: 12",
        "--- total Word Count: 7 words ---",
    ],
)
def test_lines_of_word_counts_are_dropped(line: str) -> None:
    text = f"Likes tea.\n\n{line}\nLikes rain.\n{line}\n\n{line}"
    for fields in ({"content": text}, {"content": "", "fully_formed_memory": text}):
        document, _ = _read("memory_user", {"user_id": USER, **fields})
        assert (document.content or document.assembled) == "Likes tea.\n\nLikes rain."
    kept = "The total word count: 5 -- she counted."
    assert _read("memory_user", {"user_id": USER, "content": kept})[0].content == kept


def test_accounts() -> None:
    fields = {"persona": "Calm.", "user_memory_enabled": False}
    agent = documents.read_account("users3", {"_id": AGENT, "type": "agent", **fields})
    assert agent is not None
    assert (agent.is_agent, agent.persona, agent.user_memory_enabled) == (True, "Calm.", False)
    raw = {"_id": OTHER, "type": "user", "eden_user_id": USER}
    linked = documents.read_account("users3", raw)
    assert linked is not None
    assert linked.memory_id == str(USER)


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [("agent_id", 7), ("agent_id", "mira"), ("content", 5), ("memory_type", 5)],
)
def test_a_document_whose_owner_text_or_kind_is_of_a_wrong_type_is_damaged(
    field: str, value: Any
) -> None:
    _, read = _read("memory_sessions", {field: value, "createdAt": WHEN})
    assert read.damage is V1DamageKind.WRONG_TYPE


def test_missing_or_odd_values_are_not_damage() -> None:
    for fields in ({}, {"content": None, "agent_id": None}, {"createdAt": "x", "shard_id": 5}):
        document, read = _read("memory_sessions", fields)
        assert isinstance(document, V1Memory)
        assert read.damage is None


# -- the documentation ---------------------------------------------------------------------------


def _rows(table: str) -> list[tuple[Any, str]]:
    """(value, result) of a table of the page; a row may have several values."""
    page = DOCS.read_text(encoding="utf-8").partition(f"<!-- {table} -->")[2]
    rows = [line.strip("|").split(" | ") for line in page.split("\n\n")[1].splitlines()[2:]]
    return [
        (json.loads(value), result.strip().strip("`"))
        for left, result in rows
        for value in re.findall(r"`([^`]+)`", left.partition(" (")[0])
    ]


def test_the_table_of_times_is_true() -> None:
    rows = _rows("times")
    assert len(rows) > 15
    for value, result in rows:
        found, _ = _moment(value)
        wanted = None if result.startswith("missing") else datetime.fromisoformat(result)
        assert found == wanted, value


def test_the_table_of_ids_is_true() -> None:
    rows = _rows("ids")
    assert len(rows) > 7
    for entry, result in rows:
        found = values.identifiers([entry], "facts", values.Notes())
        assert list(found) == json.loads(result), entry
