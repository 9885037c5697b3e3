"""Facts of one time are all read, and the counts of a scope are those of its rows."""

from __future__ import annotations

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
)
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import NOW, make_fact, make_reflection, writing
from tests.support.memory import add_facts, applied, facts_of

SCOPE = Scope.user(new_id(), new_id())


@pytest.mark.slow
def test_facts_of_one_millisecond_are_paged_without_loss(sqlite_store: SqliteStore) -> None:
    """Known failure 10: a bulk import gives thousands of facts one time."""
    facts = [make_fact(SCOPE, f"fact {n}") for n in range(1700)]
    add_facts(sqlite_store, *facts)
    assert [fact.id for fact in facts_of(sqlite_store, SCOPE)] == sorted(fact.id for fact in facts)


# -- counts --------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=10)
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
            change = writing(
                SCOPE,
                f"two words {number}",
                expected_version=text.version if text else 0,
                word_limit=9,
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
        applied(store, change)
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
