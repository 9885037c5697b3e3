"""The cached context, and the revisions that invalidate it."""

from __future__ import annotations

from datetime import timedelta

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import CachedContext
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    make_fact,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    some,
)
from tests.support.memory import add_fact, add_facts, applied, at_once, facts_of

LATER = NOW + timedelta(hours=1)


def context(name: str) -> CachedContext:
    return CachedContext(
        xml=f"<MemoryContext>{name}</MemoryContext>", fingerprint=name, built_at=NOW
    )


def test_a_context_is_kept_for_its_session_and_agent(store: Store) -> None:
    """Known failure 7: a context built for one account was served to another."""
    one, two = new_id(), new_id()
    session = make_session([one, two], title="Title")
    other = make_session([one])
    for each in (session, other):
        store.host.put_session(each)
    assert store.contexts.find_context(session.id, one) is None
    store.contexts.cache_context(session.id, one, context("one"))
    assert store.contexts.find_context(session.id, one) == context("one")
    assert store.contexts.find_context(session.id, two) is None
    assert store.contexts.find_context(other.id, one) is None
    store.contexts.cache_context(session.id, two, context("two"))
    store.contexts.cache_context(session.id, one, context("newer"))
    assert store.contexts.find_context(session.id, one) == context("newer")
    assert store.contexts.find_context(session.id, two) == context("two")
    assert store.host.session(session.id) == session


def test_caching_changes_no_other_field_of_the_session(store: Store) -> None:
    """Known failure 14: rewriting the whole session undid other writes."""
    session = make_session()
    store.host.put_session(session)
    messages = make_messages(session, 3)

    def work(number: int) -> None:
        if number % 2:
            store.contexts.cache_context(session.id, session.agents[0], context(str(number)))
        else:
            store.host.add_messages(session.id, messages)
            store.host.put_session(make_session([new_id()], [new_id()], id=session.id))

    at_once(6, work)
    stored = some(store.host.session(session.id))
    assert len(stored.agents) == 4
    assert len(stored.users) == 3
    assert stored.last_activity == messages[-1].created_at
    assert list(store.host.messages(session.id)) == messages
    cached = some(store.contexts.find_context(session.id, session.agents[0]))
    assert cached.fingerprint in {"1", "3", "5"}


def test_a_revision_grows_only_with_changes_in_its_scope(store: Store) -> None:
    """Known failure 7: a change was not visible for minutes."""
    agent = new_id()
    scope = Scope.user(agent, new_id())
    others = (
        Scope.user(agent, new_id()),
        Scope.user(new_id(), scope.owner),
        Scope.agent(agent),
        Scope.group(agent, scope.owner),
    )
    fact, reflection = make_fact(scope), make_reflection(scope)
    absorbed = make_reflection(scope, "absorbed")
    here = {"scope": scope, "at": LATER}
    changes: list[Change] = [
        AddFact(fact=fact),
        ReviseFact(fact_id=fact.id, expected_version=1, content="new", **here),
        SetPrivacy(target_type="fact", target_id=fact.id, private=True, **here),
        AddReflection(reflection=reflection, word_limit=300),
        ReviseReflection(reflection_id=reflection.id, expected_version=1, content="new", **here),
        AddReflection(reflection=absorbed, word_limit=300),
        WriteConsolidation(
            expected_version=0,
            content="text",
            word_limit=300,
            absorbed_ids=(absorbed.id,),
            **here,
        ),
        RemoveReflection(reflection_id=reflection.id, expected_version=2, **here),
        WritePolicy(policy=make_policy(scope, active=False), expected_version=0, at=LATER),
        RemoveFact(fact_id=fact.id, expected_version=2, **here),
    ]
    at_first = store.memory.revisions([scope, *others])
    assert at_first.keys() == {scope, *others}
    last = at_first[scope]
    for change in changes:
        applied(store, change)
        now = store.memory.revisions([scope])[scope]
        assert now > last, change
        last = now
    assert facts_of(store, scope) == []
    assert store.memory.revisions(others) == {other: at_first[other] for other in others}


def test_reading_changes_no_revision(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    fact = make_fact(scope)
    add_facts(store, fact)
    before = store.memory.revisions([scope])
    facts_of(store, scope)
    store.memory.pending(scope)
    store.memory.consolidations([scope])
    assert store.memory.revisions([scope]) == before


def test_revisions_of_many_writers_are_all_counted(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    seen = at_once(
        8,
        lambda n: (
            add_fact(store, scope, f"fact {n}"),
            store.memory.revisions([scope])[scope],
        )[1],
    )
    assert store.memory.revisions([scope])[scope] == max(seen)
    before = store.memory.revisions([scope])[scope]
    add_fact(store, scope, "one more")
    assert store.memory.revisions([scope])[scope] > before
