"""Moving the memory of one account to another, interrupting it anywhere, and undoing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.edits.user_merging import AccountMerge, UserMerger, pieces
from edenmem.engine.history.undo import Undoer
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.changes import HoldItem
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import ago, make_actor, make_held
from tests.support.interposed import InterposedStore
from tests.support.memory import (
    add_fact,
    add_reflection,
    applied,
    consolidate,
    facts_of,
    set_policy,
)
from tests.support.runtime import make_runtime
from tests.support.vectors import random_unit

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow

SAME, OWN = "Anna lives in Lisbon.", "Anna plays the cello."


class Killed(BaseException):
    """The process was killed."""


class Mortal(InterposedStore):
    """A store that dies before or after it applies its n-th set of changes."""

    def __init__(self, store: Store, left: int, *, after: bool) -> None:
        super().__init__(store)
        self._left, self._after = left, after

    def wrap(self, name: str, method: Any) -> Any:
        return self._apply if name == "apply" else method

    def _apply(self, changes: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        results = self._store.changes.apply(changes)
        if self._left == 0:
            raise Killed
        return results


@pytest.fixture
def told(store: Store) -> Cast:
    """Store memory of two agents for two accounts of Anna."""
    cast = make_cast(store)
    add_fact(store, cast.anna_scope, SAME, source_message_ids=("a" * 24,))
    add_fact(store, cast.discord_scope, SAME, source_message_ids=("b" * 24,), private=True)
    add_fact(
        store,
        cast.discord_scope,
        OWN,
        formed_at=ago(days=2),
        embedding=random_unit(3),
        embedding_model="m",
        source_message_ids=("c" * 24,),
    )
    waits = add_reflection(store, cast.discord_scope, "Anna is early.", formed_at=ago(days=1))
    used = add_reflection(store, cast.discord_scope, "Anna is kind.", formed_at=ago(days=3))
    consolidate(
        store, cast.discord_scope, "[ANNA]\n- Is kind.", expected_version=0, absorbed_ids=[used.id]
    )
    assert store.memory.pending(cast.discord_scope) == [waits]
    applied(store, HoldItem(held=make_held(cast.discord_scope, "Anna may row.")))
    adam = cast.add_agent("adam")
    consolidate(store, Scope.user(adam.id, cast.anna.id), "[ANNA]\n- Sings.", expected_version=0)
    consolidate(
        store, Scope.user(adam.id, cast.anna_on_discord.id), "[A]\n- Is tall.", expected_version=0
    )
    return cast


def merge(cast: Cast, store: Any = None, **options: Any) -> list[AccountMerge]:
    actor = make_actor(command="user merge", run_id=options.pop("run_id", new_id()))
    merger = UserMerger(make_runtime(store or cast.store, actor=actor))
    return list(merger.merge(cast.anna_on_discord.id, cast.anna.id, **options))


def state(cast: Cast, owner: str) -> dict[str, Any]:
    """Return the memory of an account, without IDs, versions and times."""
    found = {}
    for agent in cast.store.host.agents():
        scope = Scope.user(agent.id, owner)
        text = cast.store.memory.consolidations([scope]).get(scope)
        found[agent.username] = (
            sorted(
                (f.content, f.private, sorted(f.source_message_ids), f.embedding, f.formed_at)
                for f in facts_of(cast.store, scope, with_vectors=True)
            ),
            sorted((r.content, r.absorbed) for r in cast.store.memory.reflections([scope])),
            [each.content for each in cast.store.memory.pending(scope)],
            text.consolidated_content if text else "",
            [each.content for each in cast.store.memory.held([scope])],
        )
    return found


EMPTY = {"adam": ([], [], [], "", []), "eve": ([], [], [], "", [])}


def check_merged(cast: Cast) -> None:
    assert state(cast, cast.anna_on_discord.id) == EMPTY
    of_anna = state(cast, cast.anna.id)
    facts, reflections, pending, text, held = of_anna["eve"]
    assert held == ["Anna may row."]
    assert [(each[0], each[1], each[2]) for each in facts] == [
        (SAME, True, ["a" * 24, "b" * 24]),
        (OWN, False, ["c" * 24]),
    ]
    assert facts[1][3] == random_unit(3)
    assert facts[1][4] == ago(days=2)
    assert reflections == [("Anna is early.", False), ("Anna is kind.", True)]
    assert pending == ["Anna is early."]
    assert text == "[ANNA]\n- Is kind."
    assert of_anna["adam"] == ([], [("Is tall.", False)], ["Is tall."], "[ANNA]\n- Sings.", [])


def test_everything_moves_once_and_can_be_undone(told: Cast) -> None:
    before = state(told, told.anna.id), state(told, told.anna_on_discord.id)
    planned = merge(told, dry_run=True)
    assert (state(told, told.anna.id), state(told, told.anna_on_discord.id)) == before
    run_id = new_id()
    assert merge(told, run_id=run_id) == planned
    by_agent = {each.agent_id: each for each in planned}
    eve = AccountMerge(agent_id=told.eve.id, facts=1, twins=1, reflections=2, held=1, text="moved")
    assert by_agent.pop(told.eve.id) == eve
    assert [each.text for each in by_agent.values()] == ["pending"]
    check_merged(told)
    assert merge(told) == []
    for _ in range(2):  # and again: moved, undone, and moved again
        undoer = Undoer(make_runtime(told.store, actor=make_actor(command="undo")))
        outcomes = {step.outcome for step in undoer.undo_run(run_id)}
        assert outcomes <= {"done", "nothing"}, outcomes
        assert (state(told, told.anna.id), state(told, told.anna_on_discord.id)) == before
        run_id = new_id()
        merge(told, run_id=run_id)
        check_merged(told)


def test_a_fact_whose_key_is_taken_moves_without_it(store: Store) -> None:
    cast = make_cast(store)
    add_fact(store, cast.anna_scope, SAME, key="home")
    for key in ("home", "own"):
        add_fact(store, cast.discord_scope, OWN, key=key, tags=(key,))
    planned = merge(cast, dry_run=True)
    assert planned == [AccountMerge(agent_id=cast.eve.id, facts=2, keyless=1)]
    assert merge(cast) == planned
    moved = [(fact.content, fact.key, fact.tags) for fact in facts_of(store, cast.anna_scope)]
    assert set(moved) == {(SAME, "home", ()), (OWN, None, ("home",)), (OWN, "own", ("own",))}
    assert merge(cast) == []


def test_an_account_with_held_items_only_is_merged(store: Store) -> None:
    cast = make_cast(store)
    applied(store, HoldItem(held=make_held(cast.discord_scope, "Anna may row.")))
    planned = merge(cast, dry_run=True)
    assert planned == [AccountMerge(agent_id=cast.eve.id, held=1)]
    assert merge(cast) == planned
    assert [each.content for each in store.memory.held([cast.anna_scope])] == ["Anna may row."]
    assert merge(cast) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("calls", range(1, 8))
@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_it_can_be_interrupted_anywhere_and_repeated(told: Cast, calls: int, after: bool) -> None:
    with pytest.raises(Killed):
        merge(told, Mortal(told.store, calls, after=after))
    facts = facts_of(told.store, *told.anna_scopes)
    assert {fact.content for fact in facts} == {SAME, OWN}  # nothing is lost in between
    merge(told)
    check_merged(told)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_invalid_merges_are_rejected(told: Cast) -> None:
    merger = UserMerger(make_runtime(told.store))
    with pytest.raises(UsageError, match="into itself"):
        list(merger.merge(told.anna.id, told.anna.id))
    with pytest.raises(NotFoundError, match="user not found"):
        list(merger.merge(told.anna.id, new_id()))
    set_policy(told.store, told.anna_scope, active=False)
    before = state(told, told.anna_on_discord.id)
    with pytest.raises(UsageError, match="paused"):
        merge(told)
    assert state(told, told.anna_on_discord.id) == before


def test_lines_of_a_text_are_split_by_length() -> None:
    text = "[PROJECTS]\n- one two three four five\n\n* six\nseven"
    assert pieces(text, 3) == ["one two three", "four five", "six", "seven"]
