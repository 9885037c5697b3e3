"""The audit log: one entry per change, with everything needed to undo it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from edenmem.models.changes import (
    Actor,
    AddFact,
    AddReflection,
    Change,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    change_set,
    make_actor,
    make_agent,
    make_fact,
    make_policy,
    make_reflection,
)
from tests.support.memory import add_fact, add_reflection, applied, apply_one, set_policy
from tests.support.vectors import random_unit

LATER = NOW + timedelta(hours=1)
AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())


def fact_case(store: Store) -> Fact:
    return add_fact(store, SCOPE, embedding=random_unit(1), embedding_model="m")


def add_a_fact(store: Store) -> Change:
    return AddFact(fact=make_fact(SCOPE, embedding=random_unit(1), embedding_model="m"))


def revise_a_fact(store: Store) -> Change:
    fact = fact_case(store)
    return ReviseFact(
        scope=SCOPE, fact_id=fact.id, expected_version=1, content="New text.", at=LATER
    )


def remove_a_fact(store: Store) -> Change:
    fact = fact_case(store)
    return RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=LATER)


def hide_a_fact(store: Store) -> Change:
    fact = fact_case(store)
    return SetPrivacy(scope=SCOPE, target_type="fact", target_id=fact.id, private=True, at=LATER)


def add_a_reflection(store: Store) -> Change:
    return AddReflection(reflection=make_reflection(SCOPE), word_limit=300)


def revise_a_reflection(store: Store) -> Change:
    reflection = add_reflection(store, SCOPE)
    return ReviseReflection(
        scope=SCOPE, reflection_id=reflection.id, expected_version=1, content="New.", at=LATER
    )


def remove_a_reflection(store: Store) -> Change:
    reflection = add_reflection(store, SCOPE)
    return RemoveReflection(scope=SCOPE, reflection_id=reflection.id, expected_version=1, at=LATER)


def first_text(store: Store) -> Change:
    return WriteConsolidation(
        scope=SCOPE, expected_version=0, content="One.", word_limit=300, at=LATER
    )


def next_text(store: Store) -> Change:
    reflections = [add_reflection(store, SCOPE, f"thought {n}") for n in range(3)]
    applied(store, first_text(store))
    return WriteConsolidation(
        scope=SCOPE,
        expected_version=1,
        content="Two.",
        word_limit=300,
        at=LATER,
        absorbed_ids=(reflections[0].id, reflections[2].id),
    )


def first_policy(store: Store) -> Change:
    return WritePolicy(policy=make_policy(SCOPE, word_limit=9), expected_version=0, at=LATER)


def next_policy(store: Store) -> Change:
    set_policy(store, SCOPE, word_limit=8)
    return WritePolicy(policy=make_policy(SCOPE, active=False), expected_version=1, at=LATER)


def _fact(store: Store, target_id: str) -> Fact | None:
    return store.memory.fact(target_id)


def _reflection(store: Store, target_id: str) -> Reflection | None:
    return store.memory.reflection(target_id)


def _text(store: Store, target_id: str) -> Consolidation | None:
    return store.memory.consolidations([SCOPE]).get(SCOPE)


def _policy(store: Store, target_id: str) -> Policy | None:
    return store.memory.policies([SCOPE]).get(SCOPE)


CASES: dict[Callable[[Store], Change], tuple[str, type, Callable[[Store, str], Any]]] = {
    add_a_fact: ("fact", Fact, _fact),
    revise_a_fact: ("fact", Fact, _fact),
    remove_a_fact: ("fact", Fact, _fact),
    hide_a_fact: ("fact", Fact, _fact),
    add_a_reflection: ("reflection", Reflection, _reflection),
    revise_a_reflection: ("reflection", Reflection, _reflection),
    remove_a_reflection: ("reflection", Reflection, _reflection),
    first_text: ("consolidation", Consolidation, _text),
    next_text: ("consolidation", Consolidation, _text),
    first_policy: ("policy", Policy, _policy),
    next_policy: ("policy", Policy, _policy),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_an_entry_holds_the_document_before_and_after(
    store: Store, case: Callable[[Store], Change]
) -> None:
    """Known failure 53: actor, change and reason were not recorded, so nothing could be undone."""
    target_type, model, read = CASES[case]
    change = msgspec.structs.replace(case(store), reason="because [/red]")
    target_id = _target_of(change)
    before = read(store, target_id)
    actor = make_actor("fact edit", run_id=new_id())
    changes = change_set(change, at=LATER, actor=actor)
    (result,) = store.changes.apply(changes)
    assert result.status == "applied"
    after = read(store, result.target_id)

    entry = store.log.audit_entry(change.id)
    assert entry is not None
    assert (entry.id, entry.change_set_id) == (change.id, changes.id)
    assert (entry.actor, entry.at, entry.reason) == (actor, LATER, "because [/red]")
    assert (entry.target_type, entry.target_id) == (target_type, result.target_id)
    assert (entry.agent_id, entry.scope) == (AGENT, SCOPE)
    assert entry.status == "done"
    assert entry.action
    for document, stored in ((entry.before, before), (entry.after, after)):
        if stored is None:
            assert document is None
        elif model is Consolidation and stored.version == 0:
            assert document is None or document["version"] == 0
        else:
            assert document is not None
            assert document.get("embedding") is None
            msgspec.json.encode(document)
            assert msgspec.convert(document, model, strict=False) == stored
    assert next(store.log.audit()) == entry


def _target_of(change: Change) -> str:
    match change:
        case AddFact(fact=fact):
            return fact.id
        case AddReflection(reflection=reflection):
            return reflection.id
        case ReviseFact() | RemoveFact():
            return change.fact_id
        case ReviseReflection() | RemoveReflection():
            return change.reflection_id
        case SetPrivacy():
            return change.target_id
        case _:
            return ""


def test_toggles_are_audited(store: Store) -> None:
    agent = make_agent()
    store.host.add_agent(agent)
    change = SetAgentToggles(agent_id=agent.id, at=LATER, user_memory_enabled=False)
    applied(store, change)
    entry = store.log.audit_entry(change.id)
    assert entry is not None
    assert (entry.target_type, entry.target_id, entry.agent_id) == ("agent", agent.id, agent.id)
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["user_memory_enabled"], entry.after["user_memory_enabled"]) == (
        True,
        False,
    )
    assert entry.after["agent_memory_enabled"] is True


def test_refused_changes_are_not_audited(store: Store) -> None:
    fact = fact_case(store)
    duplicate = AddFact(fact=make_fact(SCOPE))
    conflict = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=9, at=LATER)
    missing = RemoveFact(scope=SCOPE, fact_id=new_id(), expected_version=1, at=LATER)
    foreign = RemoveFact(scope=Scope.agent(AGENT), fact_id=fact.id, expected_version=1, at=LATER)
    before = list(store.log.audit())
    for change, status in (
        (duplicate, "duplicate"),
        (conflict, "conflict"),
        (missing, "missing"),
        (foreign, "missing"),
    ):
        assert apply_one(store, change).status == status
        assert store.log.audit_entry(change.id) is None
    assert list(store.log.audit()) == before


def test_a_fact_that_was_added_instead_is_audited_as_an_addition(store: Store) -> None:
    new = make_fact(SCOPE, "instead")
    change = ReviseFact(
        scope=SCOPE,
        fact_id=new_id(),
        expected_version=1,
        content="instead",
        at=LATER,
        or_add=new,
    )
    assert apply_one(store, change).status == "added_instead"
    entry = store.log.audit_entry(change.id)
    assert entry is not None
    assert (entry.target_id, entry.before) == (new.id, None)
    assert entry.after is not None
    assert entry.after["content"] == "instead"


def test_a_fact_replaced_by_its_duplicate_is_audited_as_a_removal(store: Store) -> None:
    add_fact(store, SCOPE, "equal")
    target = fact_case(store)
    change = ReviseFact(
        scope=SCOPE, fact_id=target.id, expected_version=1, content="equal", at=LATER
    )
    assert apply_one(store, change).ok
    entry = store.log.audit_entry(change.id)
    assert entry is not None
    assert entry.target_id == target.id
    assert entry.before is not None
    assert entry.before["content"] == target.content
    assert entry.after is None


def test_entries_match_all_filters_newest_first(store: Store) -> None:
    other = Scope.user(new_id(), new_id())
    made: list[tuple[str, str]] = []
    for number in range(4):
        scope = other if number == 2 else SCOPE
        change = AddFact(fact=make_fact(scope, f"fact {number}"))
        applied(store, change, at=NOW + timedelta(minutes=number))
        made.append((change.id, change.fact.id))
    ids = [change_id for change_id, _ in made]

    def listed(**named: object) -> list[str]:
        return [entry.id for entry in store.log.audit(**named)]

    assert listed() == ids[::-1]
    assert listed(limit=2) == [ids[3], ids[2]]
    assert listed(agent_id=AGENT) == [ids[3], ids[1], ids[0]]
    assert listed(agent_id=other.agent_id) == [ids[2]]
    assert listed(target_id=made[1][1]) == [ids[1]]
    assert listed(target_id=made[1][1], agent_id=other.agent_id) == []
    assert store.log.audit_entry(new_id()) is None


def test_entries_are_filtered_by_scope_time_and_actor(store: Store) -> None:
    other = Scope.shard(AGENT, "lore")
    runs = [new_id(), new_id()]
    actors = [
        Actor(name="anna", host="h", command="edenmem fact add --agent eve", run_id=runs[0]),
        Actor(name="anna", host="h", command="edenmem fact additional", run_id=runs[1]),
        Actor(name="cron", host="h", command="form"),
    ]
    ids, facts = list[str](), list[str]()
    for number in range(6):
        fact = make_fact(other if number == 5 else SCOPE, f"fact {number}")
        change: Change = AddFact(fact=fact)
        if number == 4:
            change = RemoveFact(scope=SCOPE, fact_id=facts[0], expected_version=1, at=NOW)
        at = NOW + timedelta(minutes=number)
        assert store.changes.apply(change_set(change, at=at, actor=actors[number % 3]))[0].ok
        ids.append(change.id)
        facts.append(fact.id)

    def listed(**named: object) -> list[int]:
        return [ids.index(entry.id) for entry in store.log.audit(**named)]

    assert listed(scope=SCOPE) == [4, 3, 2, 1, 0]
    assert listed(scope=other) == [5]
    assert listed(scope=Scope.agent(AGENT)) == []
    assert listed(run_id=runs[0]) == [3, 0]
    assert listed(run_id=new_id()) == []
    assert listed(actor="anna") == [4, 3, 1, 0]
    assert listed(actor="anna", run_id=runs[1]) == [4, 1]
    assert listed(command="fact add") == [3, 0]
    assert listed(command="edenmem  fact") == [4, 3, 1, 0]
    assert listed(command="form") == [5, 2]
    assert listed(command="for") == []
    assert listed(command="f.*") == []
    assert listed(actions=["remove_fact"]) == [4]
    assert listed(actions=["remove_fact", "add_fact"], limit=2) == [5, 4]
    since, until = NOW + timedelta(minutes=1), NOW + timedelta(minutes=3)
    assert listed(since=since, until=until) == [2, 1]
    assert listed(actor="anna", since=since, until=until) == [1]


def test_ids_in_the_log_are_found_by_prefix(store: Store) -> None:
    """Includes IDs of objects that no longer exist, which no other search finds."""
    fact = make_fact(SCOPE, id="abcdef000000000000000001")
    other = make_fact(SCOPE, "another", id="abcdef000000000000000002")
    run = "123456789012345678901234"
    actor = Actor(name="anna", host="h", command="fact add", run_id=run)
    removal = RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW)
    set_ = change_set(AddFact(fact=fact), AddFact(fact=other), removal, actor=actor)
    assert all(result.ok for result in store.changes.apply(set_))
    assert store.log.find_audited("target", "abcdef") == [fact.id, other.id]
    assert store.log.find_audited("target", "abcdef", limit=1) == [fact.id]
    assert store.log.find_audited("target", other.id) == [other.id]
    assert removal.id in store.log.find_audited("entry", removal.id[:20])
    assert store.log.find_audited("entry", removal.id) == [removal.id]
    assert store.log.find_audited("run", run[:4]) == [run]
    assert store.log.find_audited("run", "abcdef") == []
    for nonsense in ("", "abc", "no id at all", "ABCDEF%"):
        assert store.log.find_audited("target", nonsense) == []


def test_a_duplicate_addition_is_not_found(store: Store) -> None:
    twin = add_fact(store, SCOPE)
    change = AddFact(fact=make_fact(SCOPE))
    apply_one(store, change)
    assert store.log.find_audited("entry", change.id) == []
    assert store.log.audit_entries([change.id]) == {}
    assert list(store.log.audit(target_id=twin.id, actions=["add_fact"])) != []
