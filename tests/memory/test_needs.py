"""What a change needs is named before it is judged, and may be loaded bit by bit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from edenmem.memory import Effect, Needs, State, needs, plan_all
from edenmem.models.changes import ChangeSet
from tests.support.scenes import Move, Scene, moves


class _Loaded(dict[Any, Any]):
    """What was loaded. To ask for anything else is a mistake of the planner."""

    def get(self, key: Any, default: Any = None) -> Any:
        assert key in self, f"{key} was never named as needed"
        return super().get(key, default)


def loaded(needed: Needs, memory: State) -> State:
    """What a store that has ``memory`` answers: all that is needed, and nothing more."""
    answer = State()
    for name in needed.__struct_fields__:
        known = getattr(memory, name)
        absent: Any = {"ids": False, "names": False, "blocks": False}.get(name)
        found = _Loaded({key: known.get(key, absent) for key in getattr(needed, name)})
        setattr(answer, name, found)
    answer.used = _Loaded({key: _counts(memory, key) for key in needed.used})
    for scope in needed.buffers:
        ids = memory.buffer(scope)
        known = {id: memory.reflections[id] for id in ids}
        answer.buffers[scope] = {id: each.formed_at for id, each in known.items() if each}
        text = memory.texts.get(scope)
        if text is not None:
            key = ("consolidation", text.id)
            answer.heads[key] = memory.heads.get(key)
    for fact in (memory.facts.get(id or "") for id in answer.owners.values()):
        if fact is not None and fact.expires_at is not None:
            answer.facts[fact.id] = fact
            answer.heads["fact", fact.id] = memory.heads.get(("fact", fact.id))
    answer.origins = {key: memory.origins[key] for key in answer.heads if key in memory.origins}
    return answer


@given(first=moves(Scene.kinds()), second=moves(Scene.kinds()))
def test_all_that_a_plan_looks_at_is_named(first: list[Move], second: list[Move]) -> None:
    scene = Scene("needs")
    scene.play(first)
    before, said = _copy(scene.state), len(scene.effects)
    changes = scene.play(second)
    state = loaded(needs(changes.changes), before)
    assert plan_all(changes, state) == scene.effects[said:]


@pytest.mark.slow
@given(first=moves(Scene.kinds()), second=moves(Scene.kinds()), third=moves(Scene.kinds()))
def test_a_preview_of_many_sets_may_load_as_it_goes(
    first: list[Move], second: list[Move], third: list[Move]
) -> None:
    """Nothing of a dry run is in the store, so what is loaded later must not undo it."""
    scene = Scene("preview")
    scene.play(first)
    before, said = _copy(scene.state), len(scene.effects)
    state, found = State(), []
    for changes in (scene.play(second), scene.play(third)):
        for change in changes.changes:
            alone = ChangeSet(id=changes.id, actor=changes.actor, at=changes.at, changes=(change,))
            state.take(loaded(state.missing(needs([change])), before))
            found += plan_all(alone, state)
    assert _without_places(found) == _without_places(scene.effects[said:])


def _counts(memory: State, key: tuple[str, str]) -> dict[str, int]:
    found = Counter(memory.used.get(key, {}))
    found.update(memory.grown.get(key, {}))
    return found


def _without_places(effects: list[Effect]) -> list[Effect]:
    return [replace(each, entry=each.entry and replace(each.entry, place=0)) for each in effects]


def _copy(state: State) -> State:
    fields = {name: dict(getattr(state, name)) for name in state.__struct_fields__}
    nested = {name: {k: dict(v) for k, v in fields[name].items()} for name in ("moved", "grown")}
    return State(**{**fields, **nested})
