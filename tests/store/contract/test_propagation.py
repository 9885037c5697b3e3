"""Versions to propagate are noted by the write of the version, and settled once."""

from __future__ import annotations

from edenmem.models.changes import ChangeStatus, WriteConsolidation
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import writing
from tests.support.memory import add_reflection, applied, apply_one, consolidate

AGENT = new_id()
USER = Scope.user(AGENT, new_id())
GROUP = Scope.group(AGENT, "guild")


def written(scope: Scope, version: int, *, propagate: bool = True) -> WriteConsolidation:
    return writing(scope, f"Text {version + 1}.", expected_version=version, propagate=propagate)


def noted(store: Store, scope: Scope) -> tuple[int, ...]:
    return store.memory.consolidations((scope,))[scope].unpropagated_versions


def test_writing_a_version_notes_it(store: Store) -> None:
    add_reflection(store, USER)
    applied(store, written(USER, 0))
    assert noted(store, USER) == (1,)
    consolidate(store, USER, "By hand.", expected_version=1)
    applied(store, written(USER, 2))
    assert noted(store, USER) == (1, 3)
    applied(store, written(GROUP, 0))  # a text without an earlier buffer
    assert noted(store, GROUP) == (1,)


def test_a_refused_write_notes_nothing(store: Store) -> None:
    applied(store, written(USER, 0, propagate=False))
    assert apply_one(store, written(USER, 0)).status is ChangeStatus.CONFLICT
    assert noted(store, USER) == ()
    assert store.memory.find_unpropagated() == []


def test_scopes_with_noted_versions_are_found(store: Store) -> None:
    other = Scope.user(new_id(), new_id())
    for scope in (USER, GROUP, other):
        applied(store, written(scope, 0))
    consolidate(store, Scope.agent(AGENT), "Nothing to propagate.", expected_version=0)
    everything = sorted((USER, GROUP, other), key=lambda s: (s.agent_id, s.kind, s.owner))
    assert store.memory.find_unpropagated() == everything
    assert store.memory.find_unpropagated(agent_id=AGENT) == [GROUP, USER]
    assert store.memory.find_unpropagated(agent_id=new_id()) == []


def test_settling_removes_exactly_one_version(store: Store) -> None:
    for version in range(3):
        applied(store, written(USER, version))
    before = store.memory.consolidations((USER,))[USER]
    for _ in range(2):
        store.changes.settle_propagation(USER, 2)
        assert noted(store, USER) == (1, 3)
    store.changes.settle_propagation(USER, 7)
    store.changes.settle_propagation(GROUP, 1)  # a missing text is not created
    assert store.memory.consolidations((GROUP,)) == {}
    store.changes.settle_propagation(USER, 1)
    store.changes.settle_propagation(USER, 3)
    after = store.memory.consolidations((USER,))[USER]
    assert after.unpropagated_versions == ()
    assert (after.version, after.consolidated_content) == (3, before.consolidated_content)
    assert store.memory.find_unpropagated() == []
