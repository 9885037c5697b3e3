"""A set of changes may be applied again, in pieces, and by several at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    change_set,
    make_agent,
    make_fact,
    make_policy,
    make_reflection,
)
from tests.support.memory import add_fact, add_reflection, applied, apply_one, at_once, facts_of
from tests.support.vectors import random_unit

LATER = NOW + timedelta(hours=1)


def everything_at_once(store: Store, agent: Agent, scope: Scope) -> ChangeSet:
    """One change of every kind, none of which gets in another's way."""
    assert store.add_agent(agent)
    fact = [add_fact(store, scope, f"fact {n}", embedding=random_unit(n)) for n in range(3)]
    reflection = [add_reflection(store, scope, f"thought {n}") for n in range(4)]
    new = make_fact(scope, "new fact", embedding=random_unit(9), embedding_model="m")
    instead = make_fact(scope, "instead")
    same = {"scope": scope, "at": LATER}
    return change_set(
        AddFact(fact=new),
        ReviseFact(fact_id=fact[0].id, expected_version=1, content="fact 0, revised", **same),
        ReviseFact(
            fact_id=fact[1].id, expected_version=9, content="instead", or_add=instead, **same
        ),
        RemoveFact(fact_id=fact[2].id, expected_version=1, **same),
        SetPrivacy(target_type="fact", target_id=fact[1].id, private=True, **same),
        AddReflection(reflection=make_reflection(scope, "new", formed_at=LATER), word_limit=300),
        ReviseReflection(reflection_id=reflection[0].id, expected_version=1, content="R", **same),
        RemoveReflection(reflection_id=reflection[1].id, expected_version=1, **same),
        WriteConsolidation(
            expected_version=0,
            content="Text.",
            word_limit=300,
            absorbed_ids=(reflection[2].id, reflection[3].id),
            **same,
        ),
        WritePolicy(policy=make_policy(scope, word_limit=9), expected_version=0, at=LATER),
        SetAgentToggles(agent_id=agent.id, at=LATER, user_memory_enabled=False),
        at=LATER,
    )


def state(store: Store, agent: Agent, scope: Scope) -> dict[str, Any]:
    """All that the changes could alter."""
    texts = store.consolidations([scope])
    facts = facts_of(store, scope, with_vectors=True)
    return {
        "agent": store.agent(agent.id),
        "facts": facts,
        "reflections": {r.id: r for r in store.reflections([scope])},
        "pending": store.pending(scope),
        "texts": texts,
        "policies": store.policies([scope]),
        "history": store.history("consolidation", "", scope=scope),
        "fact history": {fact.id: store.history("fact", fact.id) for fact in facts},
        "audit": {entry.id: entry for entry in store.audit(agent_id=agent.id)},
        "counts": store.info().counts,
    }


def new_scope() -> tuple[Agent, Scope]:
    agent = make_agent()
    return agent, Scope.user(agent.id, new_id())


def test_applying_twice_changes_nothing(store: Store) -> None:
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    first = store.apply(changes)
    assert {r.status for r in first} == {ChangeStatus.APPLIED, ChangeStatus.ADDED_INSTEAD}
    after_first = state(store, agent, scope)
    for _ in range(2):
        again = store.apply(changes)
        assert [r.status for r in again] == [ChangeStatus.ALREADY] * len(again)
        assert all(r.ok for r in again)
        assert state(store, agent, scope) == after_first


def test_an_addition_that_met_its_twin_adds_nothing_later(store: Store) -> None:
    agent, scope = new_scope()
    twin = add_fact(store, scope, "Anna sings.")
    late = AddFact(fact=make_fact(scope, "Anna sings."))
    wanted = make_fact(scope, "Anna sings.")
    instead = ReviseFact(
        scope=scope, fact_id=new_id(), expected_version=1, content="x", at=NOW, or_add=wanted
    )
    changes = change_set(late, instead)
    first = store.apply(changes)
    assert [(r.status, r.target_id) for r in first] == [(ChangeStatus.DUPLICATE, twin.id)] * 2
    revised = ReviseFact(
        scope=scope, fact_id=twin.id, expected_version=1, content="Anna paints.", at=LATER
    )
    applied(store, revised, at=LATER)
    again = store.apply(changes)
    assert [(r.status, r.target_id) for r in again] == [(ChangeStatus.DUPLICATE, twin.id)] * 2
    assert [fact.content for fact in facts_of(store, scope)] == ["Anna paints."]
    # Nothing was done, so nobody is told of anything.
    shown = [entry.action for entry in store.audit(agent_id=agent.id)]
    assert shown == ["revise_fact", "add_fact"]
    assert len(list(store.audit(target_id=twin.id))) == 2
    assert store.audit_entry(late.id) is None


def test_applying_in_pieces_is_the_same_as_at_once(store: Store) -> None:
    """Known failure 16: a crash in the middle left things half done for ever."""
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    total = len(changes.changes)
    done = 0
    for piece in (1, 4, 5, 8, total):
        results = store.apply(msgspec.structs.replace(changes, changes=changes.changes[:piece]))
        assert [r.status for r in results[:done]] == [ChangeStatus.ALREADY] * done
        assert ChangeStatus.ALREADY not in [r.status for r in results[done:]]
        assert all(r.ok for r in results)
        done = piece
    final = state(store, agent, scope)
    assert {fact.content for fact in final["facts"]} == {
        "new fact",
        "fact 0, revised",
        "fact 1",
        "instead",
    }
    assert len(final["pending"]) == 2
    assert final["texts"][scope].version == 1


def test_a_change_set_survives_being_written_down(store: Store) -> None:
    """What formation records is what is applied: the set, through JSON and back."""
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    copy = msgspec.json.decode(msgspec.json.encode(changes), type=ChangeSet)
    assert copy == changes
    assert all(result.ok for result in store.apply(copy))
    assert {r.status for r in store.apply(changes)} == {ChangeStatus.ALREADY}


def test_applying_from_many_threads_applies_once(store: Store) -> None:
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    results = at_once(6, lambda _: store.apply(changes))
    for each in results:
        assert all(result.ok for result in each), each
    final = state(store, agent, scope)
    assert len(final["facts"]) == 4
    assert len(final["pending"]) == 2
    assert final["texts"][scope].version == 1
    assert final["policies"][scope].version == 1
    revised = next(fact for fact in final["facts"] if fact.content == "fact 0, revised")
    assert revised.version == 2
    assert len(final["fact history"][revised.id]) == 2
    assert len(final["history"]) == 1


def test_applying_again_brings_nothing_back(store: Store) -> None:
    """A set that was completed long ago is repaired by nobody: later edits stand."""
    scope = Scope.user(new_id(), new_id())
    fact, reflection = make_fact(scope), make_reflection(scope)
    first = change_set(AddFact(fact=fact), AddReflection(reflection=reflection, word_limit=300))
    store.apply(first)
    applied(
        store,
        RemoveFact(scope=scope, fact_id=fact.id, expected_version=1, at=LATER),
        RemoveReflection(scope=scope, reflection_id=reflection.id, expected_version=1, at=LATER),
    )
    assert [r.status for r in store.apply(first)] == [ChangeStatus.ALREADY] * 2
    assert facts_of(store, scope) == []
    assert store.pending(scope) == []


def test_an_old_revision_does_not_undo_a_newer_one(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(store, scope, "one")

    def revise(version: int, content: str) -> Change:
        return ReviseFact(
            scope=scope, fact_id=fact.id, expected_version=version, content=content, at=LATER
        )

    old = revise(1, "two")
    applied(store, old)
    applied(store, revise(2, "three"))
    assert apply_one(store, old).status is ChangeStatus.ALREADY
    (stored,) = facts_of(store, scope)
    assert (stored.content, stored.version) == ("three", 3)


def test_one_conflict_keeps_no_other_change_from_being_applied(store: Store) -> None:
    """Known failure 51: one thing that failed took with it what came before or after."""
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(store, scope, "known")
    results = store.apply(
        change_set(
            AddFact(fact=make_fact(scope, "before")),
            RemoveFact(scope=scope, fact_id=fact.id, expected_version=5, at=LATER),
            WriteConsolidation(
                scope=scope, expected_version=3, content="x", word_limit=9, at=LATER
            ),
            RemoveFact(scope=scope, fact_id=new_id(), expected_version=1, at=LATER),
            AddFact(fact=make_fact(scope, "after")),
        )
    )
    assert [result.status for result in results] == [
        ChangeStatus.APPLIED,
        ChangeStatus.CONFLICT,
        ChangeStatus.CONFLICT,
        ChangeStatus.MISSING,
        ChangeStatus.APPLIED,
    ]
    assert {f.content for f in facts_of(store, scope)} == {"known", "before", "after"}
    assert store.apply(change_set()) == []


def test_a_change_sees_those_before_it_in_the_set(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    fact, reflection = make_fact(scope, "one"), make_reflection(scope)
    applied(
        store,
        AddFact(fact=fact),
        ReviseFact(scope=scope, fact_id=fact.id, expected_version=1, content="two", at=NOW),
        AddReflection(reflection=reflection, word_limit=300),
        WriteConsolidation(
            scope=scope,
            expected_version=0,
            content="Text.",
            word_limit=300,
            at=NOW,
            absorbed_ids=(reflection.id,),
        ),
    )
    (stored,) = facts_of(store, scope)
    assert (stored.content, stored.version) == ("two", 2)
    assert store.pending(scope) == []


def test_the_same_fact_from_many_threads_is_there_once(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    facts = [make_fact(scope, "Anna sings.") for _ in range(8)]
    results = at_once(8, lambda n: apply_one(store, AddFact(fact=facts[n])))
    (stored,) = facts_of(store, scope)
    assert sorted(result.status for result in results) == ["applied"] + ["duplicate"] * 7
    assert {result.target_id for result in results} == {stored.id}
