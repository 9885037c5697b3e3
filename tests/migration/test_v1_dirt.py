"""Every piece of dirt of the example dump, each by its name, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from edenmem.models.memory import Consolidation
from edenmem.models.v1 import Outcome, V1Item, V1Problem
from edenmem.models.v1 import V1ProblemKind as Kind
from tests.support.v1_files import read_dump, write_dump
from tests.support.v1_plans import items_of, plan_of
from tests.support.v1_world import DIRT, EXAMPLE, GONE, LENA, PRIYA, TOMAS, at, oid, world


@pytest.fixture(scope="module")
def items() -> list[V1Item]:
    return items_of(EXAMPLE, episodes="keep")


def of(items: list[V1Item], dirt: str, kind: str | None = None) -> V1Item:
    """The item that accounts for the document with a piece of dirt (and tells what is wrong)."""
    collection, document_id = DIRT[dirt]
    found = [
        item
        for item in items
        if any((ref.collection, ref.id) == (collection, document_id) for ref in item.sources)
        and (kind is None or item.kind == kind)
    ]
    return max(found, key=lambda item: len(item.problems))


def problems(items: list[V1Item], dirt: str, kind: Kind) -> list[V1Problem]:
    """What is said of the document."""
    collection, document_id = DIRT[dirt]
    found = [
        problem
        for item in items
        for problem in item.problems
        if (problem.collection, problem.document_id, problem.kind)
        == (collection, document_id, kind)
    ]
    assert found, f"nothing of {kind} is said of {document_id}"
    return found


def fact(items: list[V1Item], dirt: str) -> Any:
    return of(items, dirt, "fact").fact


def text(items: list[V1Item], dirt: str) -> Consolidation:
    made = of(items, dirt, "text").text
    assert made is not None
    return made


def pending(items: list[V1Item], user: object, agent: object | None = None) -> list[str]:
    return [
        item.reflection.content
        for item in items
        if item.reflection
        and item.reflection.user_id == str(user)
        and (agent is None or item.agent_id == str(agent))
    ]


# -- one check for each --------------------------------------------------------------------------

CHECKS: dict[str, Callable[[list[V1Item]], None]] = {}


def check(dirt: str) -> Callable[[Callable[[list[V1Item]], None]], None]:
    def keep(function: Callable[[list[V1Item]], None]) -> None:
        CHECKS[dirt] = function

    return keep


@check("ids as strings")
def _(items: list[V1Item]) -> None:
    told = [each.detail for each in problems(items, "ids as strings", Kind.ID_AS_TEXT)]
    assert "user_id is text, not an ID" in told
    assert text(items, "ids as strings").user_id == str(TOMAS)
    assert pending(items, TOMAS)[0] == "Send Tomas the total first."


@check("ids as dicts")
def _(items: list[V1Item]) -> None:
    assert problems(items, "ids as dicts", Kind.ID_AS_TEXT)
    assert pending(items, TOMAS)[1] == "Call Tomas 'treasurer' in letters."


@check("missing fields")
def _(items: list[V1Item]) -> None:
    assert text(items, "missing fields").consolidated_content.startswith(
        "## Lights\n\nLamp by lamp"
    )
    assert not [item for item in items if item.policy and item.policy.shard == "Lights"]


@check("null fields")
def _(items: list[V1Item]) -> None:
    item = of(items, "null fields")
    assert (item.outcome, item.reason) == (Outcome.LEFT_BEHIND, "no text yet")


@check("lists as dicts")
def _(items: list[V1Item]) -> None:
    assert "facts is a dict" in problems(items, "lists as dicts", Kind.WRONG_SHAPE)[0].detail
    contents = [item.fact.content for item in items if item.fact]
    assert "Rice paper costs 0.80 euros a sheet." in contents


@check("a pending id that points nowhere")
def _(items: list[V1Item]) -> None:
    (problem,) = problems(items, "a pending id that points nowhere", Kind.DANGLING)
    assert str(oid(999, 9.0)) in problem.detail
    assert pending(items, LENA, "6a969410ede2010000000001")[:2] == [
        "Use metric units for Lena.",
        "Tell Lena the price before anything is ordered.",
    ]


@check("a pending id of another user's memory")
def _(items: list[V1Item]) -> None:
    dirt = "a pending id of another user's memory"
    assert str(oid(104, 10.4)) in problems(items, dirt, Kind.FOREIGN_USER)[0].detail
    assert "Send Tomas the total first." not in pending(items, LENA)
    assert "Send Tomas the total first." in pending(items, TOMAS)


@check("a pending id of another agent's memory")
def _(items: list[V1Item]) -> None:
    dirt = "a pending id of another agent's memory"
    assert str(oid(100, 10.0)) in problems(items, dirt, Kind.FOREIGN_AGENT)[0].detail
    assert "Always answer Lena in two sentences." not in pending(items, LENA)


@check("a fact listed twice")
def _(items: list[V1Item]) -> None:
    id = DIRT["a fact listed twice"][1]
    assert len([item for item in items if item.sources[0].id == id]) == 1


@check("a fact in two shards")
def _(items: list[V1Item]) -> None:
    dirt = "a fact in two shards"
    assert [item.outcome for item in items if item.sources[0].id == DIRT[dirt][1]] == [
        Outcome.MIGRATED
    ]


@check("one fact in two documents")
def _(items: list[V1Item]) -> None:
    item = of(items, "one fact in two documents", "fact")
    first = oid(120, 12.0)
    assert item.outcome is Outcome.MERGED
    assert [ref.id for ref in item.sources] == [str(first), str(oid(123, 12.3))]
    merged = fact(items, "one fact in two documents")
    assert merged.formed_at == at(12.0)
    numbers = (2120, 2620, 2123, 2623)  # the messages of both
    assert merged.source_message_ids == tuple(str(oid(number)) for number in numbers)


@check("a suggestion among facts")
def _(items: list[V1Item]) -> None:
    problems(items, "a suggestion among facts", Kind.WRONG_TYPE)
    assert fact(items, "a suggestion among facts").content == "The walk needs a rain date."


@check("a shard name that repeats")
def _(items: list[V1Item]) -> None:
    problems(items, "a shard name that repeats", Kind.REPEATED_SHARD)
    content = text(items, "a shard name that repeats").consolidated_content
    assert "## Lantern Walk (2)\n\nMade by a second click." in content


@check("two texts for one pair")
def _(items: list[V1Item]) -> None:
    problems(items, "two texts for one pair", Kind.REPEATED_PAIR)
    target = text(items, "two texts for one pair")
    assert (target.version, target.consolidated_content) == (
        3,
        "Samira takes the photographs and keeps the archive.",
    )
    (earlier,) = of(items, "two texts for one pair").earlier
    assert (earlier.version, earlier.at) == (1, at(20))
    assert earlier.content == "Samira takes the photographs."
    assert of(items, "two texts for one pair").outcome is Outcome.MERGED


@check("naive times")
def _(items: list[V1Item]) -> None:
    (problem, *_) = problems(items, "naive times", Kind.TIME_AS_TEXT)
    assert "taken to be UTC" in problem.detail
    assert fact(items, "naive times").formed_at == at(14.1)


@check("times as strings")
def _(items: list[V1Item]) -> None:
    assert len(problems(items, "times as strings", Kind.TIME_AS_TEXT)) == 3
    wanted = datetime(2026, 10, 11, 9, tzinfo=UTC)
    assert text(items, "times as strings").updated_at == wanted


@check("no time")
def _(items: list[V1Item]) -> None:
    problems(items, "no time", Kind.TIME_MISSING)
    made = of(items, "no time").reflection
    assert made is not None
    assert made.formed_at == at(14.2)


@check("a text of megabytes")
def _(items: list[V1Item]) -> None:
    target = text(items, "a text of megabytes")
    assert len(target.consolidated_content) > 1_000_000


@check("invalid UTF-8")
def _(items: list[V1Item]) -> None:
    problems(items, "invalid UTF-8", Kind.INVALID_UTF8)
    assert fact(items, "invalid UTF-8").content == "The fog\ufffdhorn is at the mole."


@check("unknown fields")
def _(items: list[V1Item]) -> None:
    extra = msgspec.json.decode(of(items, "unknown fields", "text").extra)
    assert extra == {
        "/".join(DIRT["unknown fields"]): {
            "importance": 3,
            "pinned_by": [{"$oid": str(TOMAS)}],
            "theme_color": "#ffcc00",
        }
    }


@check("a user that no longer exists")
def _(items: list[V1Item]) -> None:
    dirt = "a user that no longer exists"
    assert str(GONE) in problems(items, dirt, Kind.UNKNOWN_USER)[0].detail
    assert text(items, dirt).consolidated_content == "She brought the drums."


@check("memory of an account, not of its person")
def _(items: list[V1Item]) -> None:
    assert text(items, "memory of an account, not of its person").user_id == str(PRIYA)
    assert pending(items, PRIYA) == ["Priya wants sources."]


@check("control characters")
def _(items: list[V1Item]) -> None:
    problems(items, "control characters", Kind.CONTROL_CHARACTERS)
    assert (
        text(items, "control characters").consolidated_content == "Lena borrows Otto's ladder[31m."
    )


@check("a memory of unknown type")
def _(items: list[V1Item]) -> None:
    problems(items, "a memory of unknown type", Kind.UNKNOWN_TYPE)
    assert of(items, "a memory of unknown type").outcome is Outcome.BAD


@check("an empty memory")
def _(items: list[V1Item]) -> None:
    problems(items, "an empty memory", Kind.EMPTY)
    assert of(items, "an empty memory").outcome is Outcome.LEFT_BEHIND


@check("a fact that is too long")
def _(items: list[V1Item]) -> None:
    assert fact(items, "a fact that is too long").content.endswith("to the ferry hall again.")


@check("two documents with one id")
def _(items: list[V1Item]) -> None:
    problems(items, "two documents with one id", Kind.DUPLICATE_ID)
    assert of(items, "two documents with one id").outcome is Outcome.BAD


@check("a shard without an agent")
def _(items: list[V1Item]) -> None:
    problems(items, "a shard without an agent", Kind.NO_OWNER)
    assert of(items, "a shard without an agent").agent_id == ""


@check("a text without a user")
def _(items: list[V1Item]) -> None:
    problems(items, "a text without a user", Kind.NO_OWNER)
    assert of(items, "a text without a user").outcome is Outcome.BAD


@check("a last document that is cut off")
def _(items: list[V1Item]) -> None:
    with plan_of(EXAMPLE) as plan:
        (damage,) = (each for each in plan.about.incomplete if each.kind == "ends_early")
    assert (damage.kind, damage.collection) == ("ends_early", "memory_sessions")
    assert "bytes of the last document are missing" in damage.detail


@pytest.mark.parametrize("dirt", DIRT)
def test_dirt(items: list[V1Item], dirt: str) -> None:
    CHECKS[dirt](items)


# -- the example itself --------------------------------------------------------------------------


def test_the_example_is_what_the_script_makes(tmp_path: Any) -> None:
    assert read_dump(EXAMPLE) == read_dump(write_dump(tmp_path, world(), gz=True))


def test_its_readme_names_each_piece_of_dirt() -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    rows = dict.fromkeys(line.split("|")[1].strip() for line in readme.splitlines() if "|" in line)
    assert [row for row in rows if row in DIRT] == list(DIRT)
    for collection, document_id in DIRT.values():
        assert collection in readme
        assert document_id.partition("#")[0] in readme
