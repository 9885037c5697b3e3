"""The same road on SQLite and on a server over a socket."""

from typing import TYPE_CHECKING

import pytest

from edenmem.errors import EmbeddingModelMismatch
from edenmem.models.formation import FormationStatus
from tests.engine.formation.conftest import World, decision, decisions, fact, facts, reflections
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_fact

if TYPE_CHECKING:
    pass

LISBON, PORTO = "Anna Duarte lives in Lisbon.", "Anna Duarte lives in Porto."
WALK = "The Lantern Walk is on 12 December 2026."


async def test_two_conversations_one_of_which_corrects_the_other(anywhere: World) -> None:
    world = anywhere
    world.llm.script("facts", [facts(LISBON, fact(WALK, "agent")), facts(PORTO, WALK)])
    world.llm.script("dedup", [decisions(decision(1, "DELETE", 1))])
    first = await world.learn(
        "I live in Lisbon.",
        "The walk is on 12 December.",
        reflections=[reflections(user=["Anna may move."]), reflections(session=["Anna moved."])],
    )
    assert (first.facts_added, first.reflections) == (2, {"user": 1})
    assert world.contents(world.cast.anna_scope) == [LISBON]

    second = await world.learn("I moved to Porto.")
    assert (second.facts_added, second.facts_removed) == (2, 1)
    assert world.contents(world.cast.anna_scope) == sorted([PORTO, WALK])
    assert world.contents(world.cast.agent_scope) == [WALK]
    assert world.pending(world.cast.anna_scope) == ["Anna may move."]
    assert world.pending(world.cast.session_scope) == ["Anna moved."]
    for each in world.facts(world.cast.anna_scope):
        assert each.embedding == world.embedder.vector(each.content)
    assert [each.status for each in world.formations()] == [FormationStatus.APPLIED] * 2
    assert [each.seq for each in world.formations()] == [2, 1]
    assert (await world.form_one()).outcome == "not_due"


async def test_vectors_of_another_model_are_seen_before_a_model_is_paid(anywhere: World) -> None:
    """The mismatch was found in deduplication, after the answers had been paid for."""
    world = anywhere
    own = FakeEmbedder(model="the-old-one")
    vector = own.vector(LISBON)
    add_fact(
        world.store, world.cast.anna_scope, LISBON, embedding=vector, embedding_model=own.model
    )
    world.llm.script("facts", facts(PORTO))
    world.say("I moved to Porto.", "Yes.", "To Porto.", "Indeed.")
    with pytest.raises(EmbeddingModelMismatch, match="the-old-one") as caught:
        await world.form()
    [formation] = world.formations()
    assert (formation.status, formation.attempts) == (FormationStatus.RELEASED, 0)
    hint = caught.value.hint or ""
    assert "the facts have vectors of the-old-one, but no API key is set" in hint
    assert world.llm.requests == []
