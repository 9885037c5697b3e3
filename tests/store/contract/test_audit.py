"""The audit log: one entry per change, with everything needed to undo it."""

from __future__ import annotations

from datetime import timedelta

from edenmem.models.changes import Actor, AddFact, Change, RemoveFact
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, change_set, make_fact
from tests.support.memory import add_fact, applied, apply_one

AGENT = new_id()
SCOPE = Scope.user(AGENT, new_id())


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
