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
from tests.support.memory import add_fact, add_facts, applied

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


class TestThings:
    @pytest.mark.parametrize("text", ["eden", "Eden", EDEN.id, "aaaa0", " eden "])
    def test_an_agent_by_name_id_or_prefix(self, resolver: Resolver, text: str) -> None:
        assert resolver.agent(text).id == EDEN.id

    def test_a_session_by_name_title_id_or_prefix(self, resolver: Resolver) -> None:
        for text in ("lunch", "A long lunch", LUNCH.id, "dddd"):
            assert resolver.session(text).id == LUNCH.id

    @pytest.mark.parametrize("text", ["nobody", "", "   ", "aa", "f" * 24, "%", "_", "'"])
    def test_an_unknown_reference_has_a_command_as_hint(
        self, resolver: Resolver, text: str
    ) -> None:
        with pytest.raises(NotFoundError) as caught:
            resolver.agent(text)
        assert "edenmem agent list" in (caught.value.hint or "")
        with pytest.raises(NotFoundError) as caught:
            resolver.user(text)
        assert "edenmem user add" in (caught.value.hint or "")

    def test_a_prefix_of_several_lists_them(self, resolver: Resolver) -> None:
        with pytest.raises(AmbiguousReference) as caught:
            resolver.user("cccc")
        assert caught.value.candidates == (f"{ANNA.id}  anna", f"{BEN.id}  ben")

    def test_two_accounts_of_one_person_are_not_ambiguous(
        self, resolver: Resolver, store: Store
    ) -> None:
        store.host.add_user(make_user("anna-discord", id="cccc11" + "0" * 18, eden_user_id=ANNA.id))
        assert resolver.user("cccc1").id == ANNA.id
        assert resolver.user_id("anna-discord") == "cccc11" + "0" * 18
        with pytest.raises(AmbiguousReference) as caught:
            resolver.account_id("cccc1")
        linked = f"cccc11{'0' * 18}  anna-discord  linked to {ANNA.id}"
        assert caught.value.candidates == (f"{ANNA.id}  anna", linked)

    def test_an_account_is_one_of_the_user(self, resolver: Resolver, store: Store) -> None:
        discord = make_user("anna-discord", eden_user_id=ANNA.id)
        store.host.add_user(discord)
        assert resolver.account_id("anna-discord", user_id=ANNA.id) == discord.id
        assert resolver.account_id("anna", user_id=discord.id) == ANNA.id
        with pytest.raises(UsageError, match="ben is not an account of anna"):
            resolver.account_id("ben", user_id=ANNA.id)

    def test_a_canonical_id_without_an_account_is_a_user(
        self, resolver: Resolver, store: Store
    ) -> None:
        canonical = "e" * 24
        with pytest.raises(NotFoundError):
            resolver.user_id(canonical)
        account = make_user("eva-telegram", eden_user_id=canonical)
        store.host.add_user(account)
        assert resolver.user_id(canonical) == canonical
        assert resolver.account_id(canonical, user_id=account.id) == canonical

    def test_facts_and_reflections_by_prefix(self, resolver: Resolver, store: Store) -> None:
        scope = Scope.user(EDEN.id, ANNA.id)
        fact = make_fact(scope, id="1234" + "0" * 20)
        reflection = make_reflection(scope, id="5678" + "0" * 20)
        added = AddReflection(reflection=reflection, word_limit=300)
        applied(store, AddFact(fact=fact), added)
        assert resolver.fact("1234").id == fact.id
        assert resolver.reflection("5678").id == reflection.id
        with pytest.raises(NotFoundError) as caught:
            resolver.fact("5678")
        assert "edenmem fact list" in (caught.value.hint or "")

    def test_a_deleted_fact_only_where_it_is_accepted(
        self, resolver: Resolver, store: Store
    ) -> None:
        scope = Scope.user(EDEN.id, ANNA.id)
        fact = make_fact(scope, id="1234" + "0" * 20)
        remove = removal(fact, scope=scope)
        add_facts(store, fact)
        applied(store, remove)
        for text in (fact.id, "1234"):
            assert resolver.target(text, ("fact",), removed=True).id == fact.id
        with pytest.raises(NotFoundError):
            resolver.fact(fact.id)


class TestShards:
    @pytest.mark.parametrize(
        ("text", "name"), [("events", "events"), ("EVENTS", "events"), ("recipes", "Recipes")]
    )
    def test_by_name_ignoring_case(self, resolver: Resolver, text: str, name: str) -> None:
        assert resolver.shard(EDEN, text) == name

    def test_by_a_prefix_of_its_policys_id(self, resolver: Resolver, store: Store) -> None:
        policy = next(p for p in store.memory.shards(EDEN.id) if p.shard == "events")
        assert resolver.shard(EDEN, policy.id) == "events"

    def test_an_unknown_shard_lists_the_others(self, resolver: Resolver) -> None:
        with pytest.raises(NotFoundError) as caught:
            resolver.shard(EDEN, "recipe")
        assert "events" in (caught.value.hint or "")
        assert "edenmem scope policy" in (caught.value.hint or "")

    def test_another_agents_shard_is_unknown(self, resolver: Resolver) -> None:
        with pytest.raises(NotFoundError):
            resolver.shard(ABRAHAM, "events")


class TestScopes:
    def test_each_kind(self, resolver: Resolver) -> None:
        assert resolver.scope("agent", agent="eden") == Scope.agent(EDEN.id)
        assert resolver.scope("user", agent=EDEN, user="anna") == Scope.user(EDEN.id, ANNA.id)
        group = resolver.scope("group", agent="eden", group="g", new_group=True)
        assert group == Scope.group(EDEN.id, "g")
        assert resolver.scope("shard", agent="eden", shard="events") == Scope.shard(
            EDEN.id, "events"
        )
        assert resolver.scope("session", agent="eden", session="lunch") == Scope.session(
            EDEN.id, LUNCH.id
        )

    @pytest.mark.parametrize("kind", [kind for kind in ScopeKind if kind is not ScopeKind.AGENT])
    def test_known_failure_4_a_missing_option_is_named_and_never_widens(
        self, resolver: Resolver, kind: ScopeKind
    ) -> None:
        """Known failure 4: scope `user` without a user widens to everything."""
        for nothing in (None, ""):
            with pytest.raises(ScopeError, match=f"needs --{kind}"):
                resolver.scope(kind, agent="eden", **{kind.value: nothing})  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", list(ScopeKind))
    def test_known_failure_5_a_missing_agent_is_an_error(
        self, resolver: Resolver, kind: ScopeKind
    ) -> None:
        """Known failure 5: optional ids silently drop the tenant's part of a filter."""
        owner: dict[str, Any] = {} if kind is ScopeKind.AGENT else {kind.value: "anna"}
        with pytest.raises(ScopeError, match="needs --agent"):
            resolver.scope(kind, agent=None, **owner)

    def test_an_option_of_another_kind_is_an_error(self, resolver: Resolver) -> None:
        with pytest.raises(ScopeError, match="--user cannot be combined with --scope agent"):
            resolver.scope("agent", agent="eden", user="anna")

    def test_an_unknown_kind_lists_the_kinds(self, resolver: Resolver) -> None:
        with pytest.raises(ScopeError, match="unknown scope: 'team'") as caught:
            resolver.scope("team", agent="eden")
        assert caught.value.hint == "scopes: agent, shard, group, user, session"

    def test_a_new_shard_requires_permission(self, resolver: Resolver) -> None:
        with pytest.raises(NotFoundError):
            resolver.scope("shard", agent="eden", shard="new")
        assert resolver.scope("shard", agent="eden", shard="new", new=True).owner == "new"
        assert resolver.scope("shard", agent="eden", shard="EVENTS", new=True).owner == "events"

    def test_memory_of_a_deleted_user_is_accessible(self, resolver: Resolver, store: Store) -> None:
        with pytest.raises(NotFoundError):
            resolver.scope("user", agent="eden", user=GONE)
        add_fact(store, Scope.user(EDEN.id, GONE))
        assert resolver.scope("user", agent="eden", user=GONE) == Scope.user(EDEN.id, GONE)
        with pytest.raises(NotFoundError):
            resolver.scope("user", agent="abraham", user=GONE)
        with pytest.raises(NotFoundError):
            resolver.scope("user", agent="eden", user=GONE[:8])

    def test_a_group_by_a_prefix_of_its_id_but_not_of_its_name(
        self, resolver: Resolver, store: Store
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
