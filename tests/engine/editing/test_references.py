"""Resolution of names and ID prefixes."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem.engine.scopes.references import Resolver
from edenmem.errors import AmbiguousReference, NotFoundError, ScopeError, UsageError
from edenmem.models.changes import AddFact, AddReflection, WritePolicy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    change_set,
    make_agent,
    make_fact,
    make_policy,
    make_reflection,
    make_session,
    make_user,
    removal,
)
from tests.support.memory import add_fact, applied

EDEN = make_agent("eden", id="aaaa" + "0" * 20)
ABRAHAM = make_agent("abraham", id="aaab" + "0" * 20)
ANNA = make_user("anna", id="cccc1" + "0" * 19)
BEN = make_user("ben", id="cccc2" + "0" * 19)
LUNCH = make_session([EDEN], [ANNA], id="dddd" + "0" * 20, name="lunch", title="A long lunch")
GONE = "eeee" + "0" * 20


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    for agent in (EDEN, ABRAHAM):
        sqlite_store.host.add_agent(agent)
    for user in (ANNA, BEN):
        sqlite_store.host.add_user(user)
    sqlite_store.host.put_session(LUNCH)
    for name in ("events", "Recipes", "recipes-old"):
        policy = make_policy(Scope.shard(EDEN.id, name), version=1)
        change = WritePolicy(policy=policy, expected_version=0, at=NOW)
        assert sqlite_store.changes.apply(change_set(change))[0].ok
    return sqlite_store


@pytest.fixture
def resolver(store: Store) -> Resolver:
    return Resolver(store)


# -- things --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["eden", "Eden", EDEN.id, "aaaa0", " eden "])
def test_an_agent_by_name_id_or_prefix(resolver: Resolver, text: str) -> None:
    assert resolver.agent(text).id == EDEN.id


@pytest.mark.parametrize("text", ["lunch", "A long lunch", LUNCH.id, "dddd"])
def test_a_session_by_name_title_id_or_prefix(resolver: Resolver, text: str) -> None:
    assert resolver.session(text).id == LUNCH.id


@pytest.mark.parametrize("text", ["nobody", "", "   ", "aa", "f" * 24, "%", "_", "'"])
def test_an_unknown_reference_has_a_command_as_hint(resolver: Resolver, text: str) -> None:
    for find, command in ((resolver.agent, "edenmem agent list"), (resolver.user, "user add")):
        with pytest.raises(NotFoundError) as caught:
            find(text)
        assert command in (caught.value.hint or "")


def test_a_prefix_of_several_lists_them_unless_they_are_one_person(
    resolver: Resolver, store: Store
) -> None:
    with pytest.raises(AmbiguousReference) as caught:
        resolver.user("cccc")
    assert caught.value.candidates == (f"{ANNA.id}  anna", f"{BEN.id}  ben")
    discord = make_user("anna-discord", id="cccc11" + "0" * 18, eden_user_id=ANNA.id)
    store.host.add_user(discord)
    assert resolver.user("cccc1").id == ANNA.id
    assert resolver.user_id("anna-discord") == discord.id
    with pytest.raises(AmbiguousReference) as caught:
        resolver.account_id("cccc1")
    linked = f"{discord.id}  anna-discord  linked to {ANNA.id}"
    assert caught.value.candidates == (f"{ANNA.id}  anna", linked)
    assert resolver.account_id("anna-discord", user_id=ANNA.id) == discord.id
    assert resolver.account_id("anna", user_id=discord.id) == ANNA.id
    with pytest.raises(UsageError, match="ben is not an account of anna"):
        resolver.account_id("ben", user_id=ANNA.id)


def test_a_canonical_id_without_an_account_is_a_user(resolver: Resolver, store: Store) -> None:
    canonical = "e" * 24
    with pytest.raises(NotFoundError):
        resolver.user_id(canonical)
    account = make_user("eva-telegram", eden_user_id=canonical)
    store.host.add_user(account)
    assert resolver.user_id(canonical) == canonical
    assert resolver.account_id(canonical, user_id=account.id) == canonical


def test_memory_by_prefix_and_a_deleted_fact_only_where_it_is_accepted(
    resolver: Resolver, store: Store
) -> None:
    scope = Scope.user(EDEN.id, ANNA.id)
    fact = make_fact(scope, id="1234" + "0" * 20)
    reflection = make_reflection(scope, id="5678" + "0" * 20)
    applied(store, AddFact(fact=fact), AddReflection(reflection=reflection, word_limit=300))
    assert resolver.fact("1234").id == fact.id
    assert resolver.reflection("5678").id == reflection.id
    with pytest.raises(NotFoundError) as caught:
        resolver.fact("5678")
    assert "edenmem fact list" in (caught.value.hint or "")
    applied(store, removal(fact, scope=scope))
    for text in (fact.id, "1234"):
        assert resolver.target(text, ("fact",), removed=True).id == fact.id
    with pytest.raises(NotFoundError):
        resolver.fact(fact.id)


# -- shards and groups ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"), [("events", "events"), ("EVENTS", "events"), ("recipes", "Recipes")]
)
def test_a_shard_by_name_ignoring_case(resolver: Resolver, text: str, name: str) -> None:
    assert resolver.shard(EDEN, text) == name


def test_a_shard_by_the_id_of_its_policy(resolver: Resolver, store: Store) -> None:
    policy = next(p for p in store.memory.shards(EDEN.id) if p.shard == "events")
    for text in (policy.id, policy.id[:23]):
        assert resolver.shard(EDEN, text) == "events"


def test_an_unknown_shard_lists_the_others(resolver: Resolver) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolver.shard(EDEN, "recipe")
    assert "events" in (caught.value.hint or "")
    assert "edenmem scope policy" in (caught.value.hint or "")
    with pytest.raises(NotFoundError):  # the shard of another agent
        resolver.shard(ABRAHAM, "events")


def test_a_group_by_a_prefix_of_its_id_but_not_of_its_name(
    resolver: Resolver, store: Store
) -> None:
    for group in ("beef" + "0" * 20, "dead-poets"):
        add_fact(store, Scope.group(EDEN.id, group))
    assert resolver.group(EDEN, "beef") == "beef" + "0" * 20
    assert resolver.group(EDEN, "dead", new=True) == "dead"
    assert resolver.group(EDEN, "dead-poets") == "dead-poets"
    with pytest.raises(NotFoundError, match="has group 'dead'") as caught:
        resolver.group(EDEN, "dead")
    assert "edenmem group list" in (caught.value.hint or "")
    with pytest.raises(NotFoundError):
        resolver.scope("group", agent="eden", group="dead")
    assert store.host.put_session(make_session([EDEN], [], group_id="dead"))
    assert resolver.group(EDEN, "dead") == "dead"


# -- scopes --------------------------------------------------------------------------------------


def test_the_scope_of_each_kind(resolver: Resolver) -> None:
    find = resolver.scope
    assert find("agent", agent="eden") == Scope.agent(EDEN.id)
    assert find("user", agent=EDEN, user="anna") == Scope.user(EDEN.id, ANNA.id)
    assert find("group", agent="eden", group="g", new_group=True) == Scope.group(EDEN.id, "g")
    assert find("shard", agent="eden", shard="events") == Scope.shard(EDEN.id, "events")
    assert find("session", agent="eden", session="lunch") == Scope.session(EDEN.id, LUNCH.id)


@pytest.mark.parametrize("kind", [kind for kind in ScopeKind if kind is not ScopeKind.AGENT])
def test_known_failure_4_a_missing_option_is_named_and_never_widens(
    resolver: Resolver, kind: ScopeKind
) -> None:
    """Known failure 4: scope `user` without a user widens to everything."""
    for nothing in (None, ""):
        with pytest.raises(ScopeError, match=f"needs --{kind}"):
            resolver.scope(kind, agent="eden", **{kind.value: nothing})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", list(ScopeKind))
def test_known_failure_5_a_missing_agent_is_an_error(resolver: Resolver, kind: ScopeKind) -> None:
    """Known failure 5: optional ids silently drop the tenant's part of a filter."""
    owner: dict[str, Any] = {} if kind is ScopeKind.AGENT else {kind.value: "anna"}
    with pytest.raises(ScopeError, match="needs --agent"):
        resolver.scope(kind, agent=None, **owner)


def test_unknown_kinds_and_options_of_others_are_errors(resolver: Resolver) -> None:
    with pytest.raises(ScopeError, match="--user cannot be combined with --scope agent"):
        resolver.scope("agent", agent="eden", user="anna")
    with pytest.raises(ScopeError, match="unknown scope: 'team'") as caught:
        resolver.scope("team", agent="eden")
    assert caught.value.hint == "scopes: agent, shard, group, user, session"


def test_a_new_shard_requires_permission(resolver: Resolver) -> None:
    with pytest.raises(NotFoundError):
        resolver.scope("shard", agent="eden", shard="new")
    assert resolver.scope("shard", agent="eden", shard="new", new=True).owner == "new"
    assert resolver.scope("shard", agent="eden", shard="EVENTS", new=True).owner == "events"


def test_memory_of_a_deleted_user_is_accessible(resolver: Resolver, store: Store) -> None:
    with pytest.raises(NotFoundError):
        resolver.scope("user", agent="eden", user=GONE)
    add_fact(store, Scope.user(EDEN.id, GONE))
    assert resolver.scope("user", agent="eden", user=GONE) == Scope.user(EDEN.id, GONE)
    for agent, user in (("abraham", GONE), ("eden", GONE[:8])):
        with pytest.raises(NotFoundError):
            resolver.scope("user", agent=agent, user=user)
