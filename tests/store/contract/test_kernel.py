"""A store behaves like the kernel, for any changes in any order.

The kernel alone tracks the expected state, starting from an empty memory; each store reads the
state that it needs for each set. So two stores that match the kernel match each other.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import msgspec
from hypothesis import given, settings

from edenmem.memory import preview
from edenmem.models.memory import Consolidation
from edenmem.models.records import HistoryEntry
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.support.scenes import Move, Scene, moves

_SALTS = map(str, itertools.count())


@settings(max_examples=8)
@given(first=moves(Scene.kinds()), second=moves(Scene.kinds()))
def test_a_store_matches_the_kernel(store: Store, first: list[Move], second: list[Move]) -> None:
    """Two stores once answered 9 of 16 changes differently."""
    scene = Scene(next(_SALTS))
    for part in (first, second):
        before = len(scene.effects)
        changes = scene.play(part)
        said = [effect.result for effect in scene.effects[before:]]
        dry = preview(changes, store.changes.load_state)
        assert [effect.result for effect in dry] == said
        assert store.changes.apply(changes) == said
    assert documents(store, scene) == kernel_documents(scene)
    assert log(store, scene) == kernel_log(scene)
    assert_history(store, scene)


def documents(store: Store, scene: Scene) -> dict[str, Any]:
    scopes = scene.scopes
    facts = store.memory.facts(FactFilter(scopes=scopes), with_vectors=True)
    return {
        "facts": {fact.id: fact for fact in facts},
        "reflections": {each.id: each for each in store.memory.reflections(scopes)},
        "texts": {scope: _unordered(t) for scope, t in store.memory.consolidations(scopes).items()},
        "waiting": {scope: [each.id for each in store.memory.pending(scope)] for scope in scopes},
        "held": {each.id: each for each in store.memory.held(scopes)},
        "policies": store.memory.policies(scopes),
        "agents": {id: store.host.agent(id) for id in scene.state.agents},
        "users": {id: store.host.user(id) for id in scene.state.users},
        "counts": {
            each.scope: (each.facts, each.pending)
            for each in store.memory.scopes(agent_id=scopes[0].agent_id)
            if each.facts or each.pending
        },
    }


def kernel_documents(scene: Scene) -> dict[str, Any]:
    state = scene.state
    facts = {fact.id: fact for fact in state.facts.values() if fact}
    reflections = {each.id: each for each in state.reflections.values() if each}
    texts = {
        scope: _unordered(msgspec.structs.replace(text, unabsorbed_ids=state.buffer(scope)))
        for scope, text in state.texts.items()
        if text
    }
    policies = {scope: policy for scope, policy in state.policies.items() if policy}
    counts = {
        scope: (
            sum(fact.home == scope for fact in facts.values()),
            sum(each.home == scope and not each.absorbed for each in reflections.values()),
        )
        for scope in scene.scopes
    }
    return {
        "facts": facts,
        "reflections": reflections,
        "texts": texts,
        "waiting": {scope: list(state.buffer(scope)) for scope in scene.scopes},
        "held": {each.id: each for each in state.held.values() if each},
        "policies": policies,
        "agents": state.agents,
        "users": state.users,
        "counts": {scope: each for scope, each in counts.items() if any(each)},
    }


def _unordered(text: Consolidation) -> Consolidation:
    """A text whose buffer may be in insertion order."""
    return msgspec.structs.replace(text, unabsorbed_ids=tuple(sorted(text.unabsorbed_ids)))


def log(store: Store, scene: Scene) -> dict[str, Any]:
    found = store.log.audit_entries([effect.change.id for effect in scene.effects])
    return {id: msgspec.to_builtins(entry) for id, entry in found.items()}


def kernel_log(scene: Scene) -> dict[str, Any]:
    entries = (effect.entry for effect in scene.effects)
    return {
        entry.id: msgspec.json.decode(msgspec.json.encode(entry))
        for entry in entries
        if entry is not None and entry.status == "done"
    }


def assert_history(store: Store, scene: Scene) -> None:
    """History contains the written effects, and at most the current version in addition."""
    written: dict[tuple[str, str, Scope], list[HistoryEntry]] = defaultdict(list)
    for effect in scene.effects:
        for version in effect.versions:
            written[version.target_type, version.target_id, version.scope].append(version)
    for (kind, target_id, scope), versions in written.items():
        found = store.history.versions(kind, target_id, scope=scope)
        assert found[: len(versions)] == versions
        assert len(found) <= len(versions) + 1
