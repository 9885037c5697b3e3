"""An operator's changes while a formation is recorded but not yet applied."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    Change,
    ChangeStatus,
    RemoveAgent,
    SetAgentToggles,
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
    make_formation,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    removal,
    revision,
)
from tests.support.formations import Steps
from tests.support.memory import add_fact, applied, facts_of

OWN, OTHERS = "Anna lives in Lisbon.", "Lisbon has trams."
USER = new_id()


def pause(scope: Scope) -> Change:
    return WritePolicy(policy=make_policy(scope, active=False), expected_version=0, at=NOW)


def switch_off(agent: Agent) -> Change:
    return SetAgentToggles(agent_id=agent.id, user_memory_enabled=False, at=NOW)


#: Operator's change → reason why memory of Anna is then refused.
MEANWHILE: dict[str, tuple[Callable[[Agent, Scope], Change], str]] = {
    "paused": (lambda _, scope: pause(scope), "paused in the meantime"),
    "switched off": (lambda agent, _: switch_off(agent), "switched off in the meantime"),
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_a_scope_closed_meanwhile_accepts_no_memory(store: Store, name: str) -> None:
    agent = make_agent("eve", user_memory_enabled=True, agent_memory_enabled=True)
    applied(store, AddAgent(agent=agent))
    hers, everybodys = Scope.user(agent.id, USER), Scope.agent(agent.id)
    known = add_fact(store, hers, "Anna lives in Porto.")
    session = make_session([agent])
    messages = make_messages(session, 2)
    store.host.put_session(session)
    store.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert store.formations.claim(formation)
    learned = change_set(
        AddFact(fact=make_fact(hers, OWN)),
        revision(known, "Anna moved.", scope=hers),
        AddReflection(reflection=make_reflection(hers, "Anna likes rivers."), word_limit=9),
        removal(known, scope=hers),
        AddFact(fact=make_fact(everybodys, OTHERS)),
        revision(known, "All move.", scope=hers, or_add=make_fact(everybodys, "Some move.")),
    )
    assert Steps(store).record(
        formation.id, changes=msgspec.structs.replace(learned, automatic=True)
    )

    close, why = MEANWHILE[name]
    applied(store, close(agent, hers))
    results = Steps(store).apply(formation.id, now=NOW)

    statuses = [result.status for result in results]
    assert statuses == [
        *[ChangeStatus.CONFLICT] * 4,
        ChangeStatus.APPLIED,
        ChangeStatus.ADDED_INSTEAD,
    ]
    assert all(why in result.detail for result in results[:4])
    assert [fact.content for fact in facts_of(store, hers)] == [known.content]
    assert store.memory.pending(hers) == []
    assert {fact.content for fact in facts_of(store, everybodys)} == {OTHERS, "Some move."}
    # Restored or imported memory is not a formation's.
    add_fact(store, hers, OWN)


def test_nothing_is_learned_for_an_agent_removed_meanwhile(store: Store) -> None:
    agent = make_agent("eve", user_memory_enabled=True)
    applied(store, AddAgent(agent=agent))
    learned = AddFact(fact=make_fact(Scope.user(agent.id, USER), OWN))
    applied(store, RemoveAgent(agent_id=agent.id))
    late = msgspec.structs.replace(change_set(learned), automatic=True)
    (result,) = store.changes.apply(late)
    assert (result.status, result.detail) == (
        ChangeStatus.CONFLICT,
        "its agent was removed in the meantime",
    )
    assert facts_of(store, learned.fact.home) == []


def test_an_agent_with_an_open_formation_is_not_removed(store: Store) -> None:
    agent = make_agent("eve")
    applied(store, AddAgent(agent=agent))
    session = make_session([agent])
    messages = make_messages(session, 2)
    store.host.put_session(session)
    store.host.add_messages(session.id, messages)
    assert store.formations.claim(make_formation(session, messages))
    (result,) = store.changes.apply(change_set(RemoveAgent(agent_id=agent.id)))
    assert (result.status, "has sessions" in result.detail) == (ChangeStatus.CONFLICT, True)
    assert store.host.agent(agent.id) is not None
