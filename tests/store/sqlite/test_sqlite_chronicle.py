"""What the SQLite store says of the past, and what it keeps count of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    WriteConsolidation,
)
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import NOW, change_set, make_actor, make_fact, make_reflection
from tests.support.memory import add_fact, add_reflection, applied, facts_of
from tests.support.vectors import random_unit

SCOPE = Scope.user(new_id(), new_id())


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "memory.db")
    store.database.initialize()
    yield store
    store.database.close()


def hour(number: float) -> datetime:
    return NOW + timedelta(hours=number)


def test_a_fact_that_came_back_unchanged_was_away_in_between(opened: SqliteStore) -> None:
    """Undo brings back the snapshot as it was: its own times do not tell that it was away."""
    fact = add_fact(opened, SCOPE, "one", formed_at=hour(0))
    applied(
        opened,
        RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=hour(1)),
        at=hour(1),
    )
    snapshot = opened.history.versions("fact", fact.id)[-1].snapshot
    assert snapshot is not None
    applied(opened, AddFact(fact=snapshot), at=hour(3))
    for moment, there in ((0.5, True), (2, False), (4, True)):
        found = opened.history.facts_at([SCOPE], hour(moment), limit=9)
        assert [one.id for one in found] == ([fact.id] if there else []), moment
    actions = [entry.action for entry in opened.history.versions("fact", fact.id)]
    assert actions == ["add", "delete", "restore"]


def test_a_fact_may_go_and_come_back_again_and_again(opened: SqliteStore) -> None:
    fact = add_fact(opened, SCOPE, "one", embedding=random_unit(1), embedding_model="m")
    for turn in range(3):
        at = hour(turn + 1)
        removal = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=at)
        applied(opened, removal, at=at)
        snapshot = opened.history.versions("fact", fact.id)[-1].snapshot
        assert snapshot == fact
        applied(opened, AddFact(fact=snapshot), at=at)
    revision = ReviseFact(
        scope=SCOPE, fact_id=fact.id, expected_version=1, content="two", at=hour(9)
    )
    applied(opened, revision, at=hour(9))
    history = opened.history.versions("fact", fact.id)
    assert [entry.action for entry in history] == ["add", *["delete", "restore"] * 3, "edit"]
    assert len({entry.id for entry in history}) == len(history)


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("form", "edit"),
        ("fact edit", "edit"),
        ("restore", "restore"),
        ("undo", "restore"),
        ("migrate v1", "migrate"),
        ("", "edit"),
    ],
)
def test_history_says_how_a_version_came_to_be(
    opened: SqliteStore, command: str, action: str
) -> None:
    fact = add_fact(opened, SCOPE, formation_id=new_id())
    change = ReviseFact(scope=SCOPE, fact_id=fact.id, expected_version=1, content="x", at=NOW)
    opened.changes.apply(change_set(change, actor=make_actor(command)))
    first, second = opened.history.versions("fact", fact.id)
    assert (first.action, second.action) == ("form", action)
    assert (second.actor, second.change_id) == ("tester", change.id)


def test_history_says_what_a_formation_revised(opened: SqliteStore) -> None:
    fact = add_fact(opened, SCOPE)
    formed = make_fact(SCOPE, "two", formation_id=new_id())
    change = ReviseFact(
        scope=SCOPE, fact_id=fact.id, expected_version=1, content="two", at=NOW, or_add=formed
    )
    opened.changes.apply(change_set(change))
    assert [entry.action for entry in opened.history.versions("fact", fact.id)] == ["add", "form"]


def test_the_buffer_of_a_time_has_what_was_edited_and_removed_since(opened: SqliteStore) -> None:
    edited = add_reflection(opened, SCOPE, "first wording", formed_at=hour(0))
    removed = add_reflection(opened, SCOPE, "removed later", formed_at=hour(1))
    for number, content in ((2, "second wording"), (3, "third wording")):
        change = ReviseReflection(
            scope=SCOPE,
            reflection_id=edited.id,
            expected_version=number - 1,
            content=content,
            at=hour(number),
        )
        applied(opened, change, at=hour(number))
    removal = RemoveReflection(
        scope=SCOPE, reflection_id=removed.id, expected_version=1, at=hour(4)
    )
    applied(opened, removal, at=hour(4))

    def pending(moment: float) -> list[str]:
        return [one.content for one in opened.history.pending_at(SCOPE, hour(moment))]

    assert pending(0.5) == ["first wording"]
    assert pending(1.5) == ["first wording", "removed later"]
    assert pending(2.5) == ["second wording", "removed later"]
    assert pending(3.5) == ["third wording", "removed later"]
    assert pending(4.5) == ["third wording"]
    assert opened.history.pending_at(SCOPE, hour(1.5))[1] == removed


def test_facts_of_one_millisecond_are_paged_without_loss(opened: SqliteStore) -> None:
    """Known failure 10: a bulk import gives thousands of facts one time."""
    facts = [make_fact(SCOPE, f"fact {n}") for n in range(1700)]
    opened.changes.apply(change_set(*(AddFact(fact=fact) for fact in facts)))
    assert [fact.id for fact in facts_of(opened, SCOPE)] == sorted(fact.id for fact in facts)


# -- counts --------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.sampled_from(["add", "revise", "remove", "reflect", "forget", "absorb"])))
def test_counts_are_those_of_what_there_is(tmp_path_factory, steps: list[str]) -> None:
    store = SqliteStore(tmp_path_factory.mktemp("counts") / "memory.db")
    store.database.initialize()
    revision = 0
    for number, step in enumerate(steps):
        opened_facts, pending = facts_of(store, SCOPE), store.memory.pending(SCOPE)
        change: Change
        if step == "add":
            change = AddFact(fact=make_fact(SCOPE, f"fact {number % 4}"))
        elif step == "reflect":
            change = AddReflection(reflection=make_reflection(SCOPE), word_limit=9)
        elif step == "absorb":
            text = store.memory.consolidations([SCOPE]).get(SCOPE)
            change = WriteConsolidation(
                scope=SCOPE,
                expected_version=text.version if text else 0,
                content=f"two words {number}",
                word_limit=9,
                at=NOW,
                absorbed_ids=tuple(one.id for one in pending[:2]),
            )
        elif step == "forget" and pending:
            change = RemoveReflection(
                scope=SCOPE, reflection_id=pending[0].id, expected_version=1, at=NOW
            )
        elif step in ("revise", "remove") and opened_facts:
            same = {
                "scope": SCOPE,
                "fact_id": opened_facts[0].id,
                "expected_version": opened_facts[0].version,
                "at": NOW,
            }
            change = (
                RemoveFact(**same)
                if step == "remove"
                else ReviseFact(content=f"fact {number % 3}", **same)
            )
        else:
            continue
        audited = len(list(store.log.audit()))
        store.changes.apply(change_set(change))
        now = store.memory.revisions([SCOPE])[SCOPE]
        assert (now > revision) == (len(list(store.log.audit())) > audited)
        revision = now
    text = store.memory.consolidations([SCOPE]).get(SCOPE)
    facts, pending = facts_of(store, SCOPE), store.memory.pending(SCOPE)
    summaries = list(store.memory.scopes())
    assert bool(summaries) == bool(
        facts or (text and text.version) or list(store.memory.reflections([SCOPE]))
    )
    for summary in summaries:
        assert (summary.facts, summary.pending) == (len(facts), len(pending))
        assert summary.version == (text.version if text else 0)
        assert summary.words == (3 if text and text.version else 0)
    found = store.search.text_candidates(FactFilter(scopes=(SCOPE,)), ["fact"], limit=99)
    assert {one.fact_id for one in found[0]} == {fact.id for fact in facts}
    store.database.close()
