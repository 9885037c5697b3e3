"""Overview of scopes and the store."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edenmem.engine.scopes.overview import scope_statuses, store_overview
from edenmem.engine.scopes.references import load_labels
from edenmem.models.changes import AddReflection, WritePolicy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    NOW,
    ago,
    change_set,
    make_agent,
    make_fact,
    make_formation,
    make_messages,
    make_policy,
    make_reflection,
    make_session,
    make_user,
    writing,
)
from tests.support.formations import Steps
from tests.support.memory import add_facts, applied

SETTINGS = Settings()
EDEN, ABRAHAM = make_agent("eden"), make_agent("abraham")
ANNA = make_user("anna")
LUNCH = make_session([EDEN], [ANNA], name="lunch")
OF_ANNA = Scope.user(EDEN.id, ANNA.id)
OF_EDEN = Scope.agent(EDEN.id)


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    for agent in (EDEN, ABRAHAM):
        sqlite_store.host.add_agent(agent)
    sqlite_store.host.add_user(ANNA)
    sqlite_store.host.put_session(LUNCH)
    return sqlite_store


def reflect(store: Store, scope: Scope, count: int) -> None:
    changes = [
        AddReflection(
            reflection=make_reflection(scope, f"Number {n}.", formed_at=ago(hours=count - n)),
            word_limit=300,
        )
        for n in range(count)
    ]
    applied(store, *changes)


def write_policy(store: Store, scope: Scope, **fields: object) -> None:
    policy = make_policy(scope, version=1, **fields)
    assert store.changes.apply(change_set(WritePolicy(policy=policy, expected_version=0, at=NOW)))[
        0
    ].ok


class TestScopeStatuses:
    def test_limits_of_the_kind(self, store: Store) -> None:
        reflect(store, OF_ANNA, 3)
        (status,) = scope_statuses(store, SETTINGS)
        assert status.scope == OF_ANNA
        assert (status.pending, status.consolidate_at, status.due) == (3, 4, False)
        assert status.word_limit == 300
        reflect(store, OF_ANNA, 1)
        (status,) = scope_statuses(store, SETTINGS)
        assert status.due

    def test_the_policy_of_a_scope_overrides_the_defaults(self, store: Store) -> None:
        reflect(store, OF_ANNA, 2)
        write_policy(store, OF_ANNA, consolidate_at=2, word_limit=50)
        (status,) = scope_statuses(store, SETTINGS)
        assert (status.consolidate_at, status.word_limit, status.due) == (2, 50, True)

    def test_a_paused_scope_is_never_due(self, store: Store) -> None:
        reflect(store, OF_ANNA, 9)
        write_policy(store, OF_ANNA, active=False)
        (status,) = scope_statuses(store, SETTINGS)
        assert (status.active, status.due) == (False, False)

    def test_texts_and_the_oldest_pending(self, store: Store) -> None:
        reflect(store, OF_ANNA, 3)
        text = writing(
            OF_ANNA, "Anna is kind.", absorbed_ids=(store.memory.pending(OF_ANNA)[0].id,)
        )
        applied(store, text)
        (status,) = scope_statuses(store, SETTINGS, details=True)
        assert (status.version, status.words) == (1, 3)
        assert status.last_consolidated_at == NOW
        assert status.oldest_pending_at == ago(hours=2)
        (plain,) = scope_statuses(store, SETTINGS)
        assert plain.oldest_pending_at is None

    def test_more_scopes_than_one_batch(self, store: Store) -> None:
        count = 1100
        facts = [make_fact(Scope.group(EDEN.id, f"g{n:04}")) for n in range(count)]
        add_facts(store, *facts)
        statuses = list(scope_statuses(store, SETTINGS, kinds=[ScopeKind.GROUP]))
        assert [status.scope.owner for status in statuses] == [f"g{n:04}" for n in range(count)]
        assert {status.word_limit for status in statuses} == {500}


def test_names(store: Store) -> None:
    scopes = [
        OF_ANNA,
        OF_EDEN,
        Scope.session(EDEN.id, LUNCH.id),
        Scope.shard(EDEN.id, "events"),
        Scope.user(EDEN.id, "f" * 24),
    ]
    assert load_labels(store, [*scopes, ABRAHAM.id]) == {
        EDEN.id: "eden",
        ABRAHAM.id: "abraham",
        ANNA.id: "anna",
        LUNCH.id: "lunch",
        "events": "events",
    }
    assert load_labels(store, []) == {}


class TestStoreOverview:
    def test_counts_agents_formations_and_models(self, store: Store) -> None:
        reflect(store, OF_ANNA, 5)
        add_facts(store, make_fact(OF_ANNA), make_fact(OF_EDEN))
        messages = make_messages(LUNCH, 4)
        store.host.add_messages(LUNCH.id, messages)
        formation = make_formation(LUNCH, messages)
        assert store.formations.claim(formation)
        assert Steps(store).fail(formation.id, worker="worker-1", now=NOW, error="no answer")
        overview = store_overview(store, SETTINGS)
        eden = next(agent for agent in overview.agents if agent.username == "eden")
        assert (eden.scopes, eden.facts, eden.pending, eden.due) == (2, 2, 5, 1)
        assert [agent.username for agent in overview.agents] == ["abraham", "eden"]
        assert overview.formations == {"failed": 1}
        assert [item.error for item in overview.failed] == ["no answer"]
        assert not overview.unfinished
        assert overview.vector_models == {"": 2}

    def test_of_one_agent(self, store: Store) -> None:
        overview = store_overview(store, SETTINGS, agent_id=ABRAHAM.id)
        assert [agent.username for agent in overview.agents] == ["abraham"]


def test_listing_needs_no_slow_imports() -> None:
    heavy = ("numpy", "pydantic", "openai", "asyncio", "pymongo", "jinja2", "typer", "sqlite3")
    code = (
        "import sys, edenmem.engine.scopes.overview, edenmem.engine.scopes.references; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
