"""No read method returns anything outside the given scopes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.errors import ScopeError
from edenmem.models.changes import AddReflection
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Reflection, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, make_fact, make_reflection
from tests.support.memory import add_fact, add_facts, applied, consolidate, set_policy
from tests.support.vectors import random_unit

CONTENTS = ("Anna keeps bees.", "Ben keeps bees.", "Anna sings.", "蜜蜂")
OWNERS = (new_id(), new_id())  # users, groups, sessions and shards
SESSIONS = (new_id(), new_id())


@dataclass(frozen=True)
class Placed:
    """The scope of a fact (agents are numbers here), and its fields."""

    agent: int
    kind: ScopeKind
    owner: int
    content: int
    day: int
    session: int | None

    def scope(self, agents: list[str]) -> Scope:
        owner = OWNERS[self.owner] if self.kind is not ScopeKind.AGENT else ""
        return Scope(self.kind, agents[self.agent], owner)


def placed(*kinds: ScopeKind) -> st.SearchStrategy[Placed]:
    return st.builds(
        Placed,
        agent=st.integers(0, 1),
        kind=st.sampled_from(kinds),
        owner=st.integers(0, 1),
        content=st.integers(0, len(CONTENTS) - 1),
        day=st.integers(0, 4),
        session=st.none() | st.integers(0, 1),
    )


KINDS = tuple(ScopeKind)
FACT_KINDS = tuple(kind for kind in ScopeKind if kind is not ScopeKind.SESSION)


@settings(max_examples=8)
@given(
    memories=st.lists(placed(*FACT_KINDS), min_size=1, max_size=25),
    readers=st.lists(placed(*KINDS), max_size=4),
    since=st.none() | st.integers(0, 4),
    until=st.none() | st.integers(0, 5),
    session=st.none() | st.integers(0, 1),
    limit=st.integers(1, 30),
)
def test_every_way_of_reading_facts_keeps_to_the_filter(
    store: Store,
    memories: list[Placed],
    readers: list[Placed],
    since: int | None,
    until: int | None,
    session: int | None,
    limit: int,
) -> None:
    """Known failures 2, 4, 5 and 31: filters without an ID, too wide, or applied after the
    limit."""
    agents = [new_id(), new_id()]
    facts: dict[tuple[Scope, int], Fact] = {}
    for number, one in enumerate(memories):
        scope = one.scope(agents)
        fact = make_fact(
            scope,
            CONTENTS[one.content],
            formed_at=NOW + timedelta(days=one.day, seconds=number),
            session_id=_session(one.session),
            embedding=random_unit(one.content),
            embedding_model="m",
        )
        facts.setdefault((scope, one.content), fact)
    add_facts(store, *facts.values())

    scopes = tuple({reader.scope(agents) for reader in readers})
    filter = FactFilter(
        scopes=scopes,
        since=None if since is None else NOW + timedelta(days=since),
        until=None if until is None else NOW + timedelta(days=until),
        session_id=_session(session),
    )
    inside = [fact for fact in facts.values() if fact.home in scopes]
    wanted = [fact for fact in inside if _matches(fact, filter)]
    newest_first = sorted(wanted, key=lambda fact: fact.formed_at, reverse=True)

    listed = [fact.id for fact in store.memory.facts(filter)]
    assert listed == [fact.id for fact in newest_first]
    assert [f.id for f in store.memory.facts(filter, limit=limit)] == listed[:limit]
    everything = [fact.id for fact in facts.values()]
    assert store.memory.facts_by_ids(scopes, everything).keys() == {fact.id for fact in inside}
    recent = store.memory.recent_facts(scopes, since=NOW, limit=100, live_at=NOW)
    assert {fact.id for fact in recent} == {fact.id for fact in inside}
    assert {
        fact.id for fact in store.history.facts_at(scopes, NOW + timedelta(days=9), limit=100)
    } == {fact.id for fact in inside}
    for scope in scopes:
        hashes = [content_hash(content) for content in CONTENTS]
        found = store.memory.facts_by_hashes(scope, hashes)
        assert {f.id for f in found.values()} == {f.id for f in inside if f.home == scope}
    models = {fact.embedding_model for fact in inside if fact.embedding_model}
    assert set(store.vectors.vector_model_names(scopes)) == models

    (near,) = store.search.semantic_candidates(filter, [random_unit(0)], model="m", limit=100)
    assert {candidate.fact_id for candidate in near} == set(listed)
    (few,) = store.search.semantic_candidates(filter, [random_unit(0)], model="m", limit=limit)
    assert few == near[:limit]
    (matching,) = store.search.text_candidates(filter, ["Anna"], limit=100)
    assert {candidate.fact_id for candidate in matching} == {
        fact.id for fact in wanted if "Anna" in fact.content
    }
    (few,) = store.search.text_candidates(filter, ["Anna"], limit=limit)
    assert [candidate.fact_id for candidate in few] == [c.fact_id for c in matching][:limit]


def _session(number: int | None) -> str | None:
    return None if number is None else SESSIONS[number]


def _matches(fact: Fact, filter: FactFilter) -> bool:
    return (
        (filter.since is None or fact.formed_at >= filter.since)
        and (filter.until is None or fact.formed_at < filter.until)
        and (filter.session_id is None or fact.session_id == filter.session_id)
    )


@settings(max_examples=6)
@given(
    memories=st.lists(placed(*KINDS), min_size=1, max_size=20),
    readers=st.lists(placed(*KINDS), max_size=4),
)
def test_every_way_of_reading_reflections_keeps_to_the_scopes(
    store: Store, memories: list[Placed], readers: list[Placed]
) -> None:
    agents = [new_id(), new_id()]
    made: list[Reflection] = []
    for number, one in enumerate(memories):
        scope = one.scope(agents)
        fields = {} if scope.session_id else {"session_id": _session(one.session)}
        made.append(
            make_reflection(
                scope, CONTENTS[one.content], formed_at=NOW + timedelta(seconds=number), **fields
            )
        )
    applied(store, *(AddReflection(reflection=r, word_limit=300) for r in made))
    for scope in {reflection.home for reflection in made}:
        assert consolidate(store, scope, f"Text of {scope.key}.", expected_version=0).ok
        set_policy(store, scope, memory_instructions=scope.key)

    scopes = tuple({reader.scope(agents) for reader in readers})
    inside = [reflection for reflection in made if reflection.home in scopes]
    assert [r.id for r in store.memory.reflections(scopes)] == [r.id for r in reversed(inside)]
    homes = {reflection.home for reflection in inside}
    texts = store.memory.consolidations(scopes)
    assert {scope: text.consolidated_content for scope, text in texts.items()} == {
        scope: f"Text of {scope.key}." for scope in homes
    }
    policies = store.memory.policies(scopes)
    assert {scope: policy.memory_instructions for scope, policy in policies.items()} == {
        scope: scope.key for scope in homes
    }
    for scope in scopes:
        mine = [reflection.id for reflection in inside if reflection.home == scope]
        assert [reflection.id for reflection in store.memory.pending(scope)] == mine
        assert [r.id for r in store.history.pending_at(scope, NOW + timedelta(days=1))] == mine


# -- missing owners ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ScopeKind))
def test_a_scope_needs_its_owner(kind: ScopeKind) -> None:
    """Known failure 4: scope "user" without a user matched everything the agent knows."""
    with pytest.raises(ScopeError):
        Scope(kind, "")
    with pytest.raises(ScopeError):
        Scope(kind, new_id(), "" if kind is not ScopeKind.AGENT else new_id())


def test_no_scopes_match_nothing(store: Store) -> None:
    """Known failure 45: an empty list became None, which meant no filter."""
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(store, scope, "Anna sings.", embedding=random_unit(1), embedding_model="m")
    nothing = FactFilter(scopes=())
    assert list(store.memory.facts(nothing)) == []
    assert store.memory.recent_facts([], since=NOW - timedelta(days=9), limit=9, live_at=NOW) == []
    assert store.memory.facts_by_ids([], [fact.id]) == {}
    assert store.memory.facts_by_ids([scope], []) == {}
    assert store.memory.facts_by_hashes(scope, []) == {}
    assert store.history.facts_at([], NOW + timedelta(days=9), limit=9) == []
    assert store.search.semantic_candidates(nothing, [random_unit(1)], model="m", limit=9) == [[]]
    assert store.search.text_candidates(nothing, ["Anna"], limit=9) == [[]]
    assert store.memory.revisions([]) == {}


def test_a_session_is_the_source_of_a_fact_and_not_its_owner(store: Store) -> None:
    agent, user, session = new_id(), new_id(), new_id()
    fact = add_fact(store, Scope.user(agent, user), session_id=session)
    assert list(store.memory.facts(FactFilter(scopes=(Scope.session(agent, session),)))) == []
    assert store.memory.facts_by_ids([Scope.agent(agent)], [fact.id]) == {}


#: Names of shards that are not equal, although some databases or patterns say so.
LIKE = [
    ("b", "B"),
    ("x", "x "),
    ("é", "e\u0301"),
    ("%", "_"),
    ("lore", "lore.*"),
    ("null", "None"),
    ("a:b", "a"),
    ("$a.b", "a.b"),
]


def test_names_of_shards_are_not_confused(store: Store) -> None:
    for names in LIKE:
        agent = new_id()
        scopes = [Scope.shard(agent, name) for name in names]
        add_facts(store, *(make_fact(scope) for scope in scopes))
        for scope in scopes:
            assert [f.home for f in store.memory.facts(FactFilter(scopes=(scope,)))] == [scope]
            set_policy(store, scope)
            assert store.memory.policies([scope]).keys() == {scope}
            assert consolidate(store, scope, scope.owner, expected_version=0).ok
        texts = store.memory.consolidations(scopes)
        assert [texts[scope].consolidated_content for scope in scopes] == list(names)
        assert [policy.shard for policy in store.memory.shards(agent)] == sorted(names)
