"""A set of changes may be applied repeatedly, in parts, and concurrently."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from edenmem.models.changes import (
    AddFact,
    AddReflection,
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
from tests.support.memory import add_fact, add_reflection, apply_one, at_once, facts_of
from tests.support.vectors import random_unit

LATER = NOW + timedelta(hours=1)


def everything_at_once(store: Store, agent: Agent, scope: Scope) -> ChangeSet:
    """Independent changes of every kind."""
    assert store.host.add_agent(agent)
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
    """Everything that the changes could alter."""
    texts = store.memory.consolidations([scope])
    facts = facts_of(store, scope, with_vectors=True)
    return {
        "agent": store.host.agent(agent.id),
        "facts": facts,
        "reflections": {r.id: r for r in store.memory.reflections([scope])},
        "pending": store.memory.pending(scope),
        "texts": texts,
        "policies": store.memory.policies([scope]),
        "history": store.history.versions("consolidation", "", scope=scope),
        "fact history": {fact.id: store.history.versions("fact", fact.id) for fact in facts},
        "audit": {entry.id: entry for entry in store.log.audit(agent_id=agent.id)},
        "counts": store.database.info().counts,
    }


def new_scope() -> tuple[Agent, Scope]:
    agent = make_agent()
    return agent, Scope.user(agent.id, new_id())


def test_applying_in_pieces_has_the_same_result(store: Store) -> None:
    """Known failure 16: a crash left changes half applied for ever."""
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    total = len(changes.changes)
    done = 0
    for piece in (1, 4, 5, 8, total):
        results = store.changes.apply(
            msgspec.structs.replace(changes, changes=changes.changes[:piece])
        )
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


def test_a_change_set_round_trips(store: Store) -> None:
    """A formation is recorded as JSON, and applied from it."""
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    copy = msgspec.json.decode(msgspec.json.encode(changes), type=ChangeSet)
    assert copy == changes
    assert all(result.ok for result in store.changes.apply(copy))
    assert {r.status for r in store.changes.apply(changes)} == {ChangeStatus.ALREADY}


def test_applying_from_many_threads_applies_once(store: Store) -> None:
    agent, scope = new_scope()
    changes = everything_at_once(store, agent, scope)
    results = at_once(6, lambda _: store.changes.apply(changes))
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


def test_the_same_fact_from_many_threads_is_stored_once(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    facts = [make_fact(scope, "Anna sings.") for _ in range(8)]
    results = at_once(8, lambda n: apply_one(store, AddFact(fact=facts[n])))
    (stored,) = facts_of(store, scope)
    assert sorted(result.status for result in results) == ["applied"] + ["duplicate"] * 7
    assert {result.target_id for result in results} == {stored.id}
