"""Documents of earlier v1, from the dump to the items of the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edenmem.models.v1 import V1Item
from edenmem.models.v1 import V1ProblemKind as Kind
from tests.support.v1_files import Database, write_dump
from tests.support.v1_plans import items_of_database, plan_of
from tests.support.v1_world import (
    LENA,
    MIRA,
    PRIYA,
    PRIYA_ON_DISCORD,
    TOMAS,
    account,
    memory,
    oid,
    shard,
    user_text,
)

_NAME = "-- User Memory for lena --"


def _text(items: list[V1Item], user: object = LENA) -> tuple[str, set[Kind]]:
    (item,) = [
        each
        for each in items
        if each.kind == "text" and each.sources[0].collection == "memory_user"
        if each.text is None or each.text.user_id == str(user)
    ]
    content = item.text.consolidated_content if item.text else ""
    return content, {problem.kind for problem in item.problems}


def _user(served: str, *, listed: int = 1, **more: Any) -> Database:
    """Lena's text, empty but for what v1 served, with some of two directives pending."""
    directives = [
        memory(101, "directive", "Use metric units.", users=[LENA]),
        memory(102, "directive", "Answer\n- in steps", users=[LENA]),
    ]
    pending = [each["_id"] for each in directives[:listed]]
    text = user_text(30, LENA, "", unabsorbed_memory_ids=pending, fully_formed_memory=served)
    return {"memory_sessions": [*directives], "memory_user": [{**text, **more}]}


@pytest.mark.parametrize(
    ("served", "kept"),
    [
        ("Lena likes tea.", "Lena likes tea."),
        (f"{_NAME}\n\n## Consolidated user memory:\n\nLena likes tea.", "Lena likes tea."),
        ("## Lena\n\nLikes tea.", "## Lena\n\nLikes tea."),
        (_NAME, ""),
        ("  \n", ""),
        (f"{_NAME}\n\n## Recent user directives:\n\n- Use metric units. (age: 3 days ago)", ""),
        (
            f"{_NAME}\n\n## Consolidated user memory:\n\nLena likes tea.\n\n"
            "## Recent user directives:\n\n- Use metric units. (age: 1 days ago)\n"
            "- Forget the lamp. (age: 0 days ago)",
            "Lena likes tea.\n\n## Recent user directives\n\n- Forget the lamp.",
        ),
    ],
)
def test_a_text_that_is_only_in_the_assembled_one(tmp_path: Path, served: str, kept: str) -> None:
    content, kinds = _text(items_of_database(tmp_path, _user(served)))
    assert content == kept
    assert (Kind.ASSEMBLED_TEXT in kinds) == bool(kept)


def test_what_lists_repeat_is_left_out_whatever_is_in_it(tmp_path: Path) -> None:
    served = (
        "## Recent user directives:\n\n- Answer\n- in steps (age: 2 days ago)\n"
        "- Use metric units. (age: 2 days ago)"
    )
    assert _text(items_of_database(tmp_path, _user(served, listed=2)))[0] == ""
    alone, _ = _text(items_of_database(tmp_path / "one", _user(served, listed=1)))
    assert alone == "## Recent user directives\n\n- Answer\n- in steps"


def test_a_version_line_in_it_counts(tmp_path: Path) -> None:
    served = "## Consolidated user memory:\n\nVERSION: 7\nLena likes tea."
    items = items_of_database(tmp_path, _user(served))
    (target,) = [each.text for each in items if each.text]
    assert (target.version, target.consolidated_content) == (7, "Lena likes tea.")


@pytest.mark.parametrize("shards", ["merge", "keep"])
def test_a_shard_whose_text_and_facts_have_older_names(tmp_path: Path, shards: str) -> None:
    older = shard(oid(40), "Walk", None, is_active=True, relevant_facts=[oid(103, 10.3)])
    del older["facts"], older["fully_formed_memory"]
    older["fully_formed_memory_shard"] = (
        "## Memory shard context:\n\nYou have an active collective memory shard called Walk. "
        "Context for this memory collection: Remember what matters for: Walk\n\n"
        "## Shard facts:\n\n- The tide turns. (age: 4 days ago)\n\n"
        "## Current consolidated shard memory:\n\nIt starts at five.\n\n"
        "-- Total word count: 4 --"
    )
    facts = [memory(103, "fact", "The tide turns.", shard=oid(40))]
    database = {"memory_agent": [older], "memory_sessions": facts}
    items = items_of_database(tmp_path, database, shards=shards)
    (text,) = [each.text for each in items if each.text]
    heading = "## Walk\n\n" if shards == "merge" else ""
    assert text.consolidated_content == f"{heading}It starts at five."
    assert len([each for each in items if each.fact]) == 1


def test_older_lists_are_pending(tmp_path: Path) -> None:
    database = _user("", unabsorbed_directive_ids=[oid(102, 10.2)])
    items = items_of_database(tmp_path, database)
    assert len([each for each in items if each.reflection]) == 2
    assert not [each for each in items if each.extra]


def test_related_users_stay_on_the_item(tmp_path: Path) -> None:
    both = memory(101, "directive", "Share the plan.", users=[LENA, PRIYA_ON_DISCORD, "nobody"])
    database = {
        "memory_sessions": [both],
        "memory_user": [user_text(30, LENA, "x", unabsorbed_memory_ids=[both["_id"]])],
        "users3": [account(PRIYA_ON_DISCORD, "user", "priya#1", eden_user_id=PRIYA)],
    }
    (item,) = [each for each in items_of_database(tmp_path, database) if each.kind == "reflection"]
    assert item.reflection
    assert item.reflection.related_users == (str(LENA), str(PRIYA))


def test_people_come_with_all_their_accounts(tmp_path: Path) -> None:
    database = {
        "memory_user": [
            user_text(30, PRIYA_ON_DISCORD, "Priya checks."),
            user_text(31, TOMAS, "Tomas pays."),
        ],
        "users3": [
            account(MIRA, "agent", "mira", persona="Calm.", user_memory_enabled=False),
            account(PRIYA_ON_DISCORD, "user", "priya#1", eden_user_id=PRIYA),
            account(oid(17), "user", "priya#2", eden_user_id=PRIYA, deleted=True),
            account(TOMAS, "user", "tomas"),
            account(oid(18), "user", "tomas#1", eden_user_id=TOMAS),
        ],
    }
    with plan_of(write_dump(tmp_path, database)) as plan:
        (agent,) = plan.agents()
        people = [(each.id, each.username, each.eden_user_id, each.known) for each in plan.users()]
    assert (agent.persona, agent.user_memory_enabled) == ("Calm.", False)
    assert people == [
        (str(TOMAS), "tomas", "", True),
        (str(oid(18)), "tomas#1", str(TOMAS), True),
        (str(PRIYA), "", "", True),
        (str(PRIYA_ON_DISCORD), "priya#1", str(PRIYA), True),
        (str(oid(17)), "priya#2", str(PRIYA), False),
    ]
