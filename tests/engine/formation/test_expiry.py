"""A fact that is said again no longer expires, and an expired one does not hide what is new."""

from __future__ import annotations

from datetime import timedelta

import pytest

from edenmem.models.memory import FactFields
from tests.engine.formation.conftest import World, decision, decisions, fact, facts, reflections
from tests.support.builders import make_fact
from tests.support.memory import add_facts

LISBON = "Anna Duarte lives in Lisbon."
HOME = "Anna Duarte has her home in Lisbon."


@pytest.mark.parametrize(
    ("said", "verdict", "left"),
    [
        (LISBON, None, LISBON),
        (HOME, ("NONE", None), LISBON),
        (HOME, ("UPDATE", HOME), HOME),
    ],
)
async def test_what_is_said_again_does_not_expire(
    world: World, said: str, verdict: tuple[str, str | None] | None, left: str
) -> None:
    known = make_fact(
        world.cast.anna_scope,
        LISBON,
        tags=("home",),
        expires_at=world.clock() + timedelta(days=1),
        embedding=world.embedder.vector(LISBON),
        embedding_model=world.embedder.model,
    )
    add_facts(world.store, known)
    world.say("I am Anna Duarte, I live in Lisbon.")
    world.llm.script("facts", facts(fact(said, sources=[1])))
    world.llm.script("reflections", reflections())
    if verdict is not None:
        world.llm.script("dedup", decisions(decision(1, verdict[0], 1, verdict[1])))
    await world.form_one()
    (now,) = world.facts(world.cast.anna_scope)
    assert (now.id, now.content) == (known.id, left)
    assert now.fields == FactFields(tags=("home",))


async def test_an_expired_fact_is_no_neighbor(world: World) -> None:
    gone = make_fact(
        world.cast.anna_scope,
        LISBON,
        expires_at=world.clock(),
        embedding=world.embedder.vector(LISBON),
        embedding_model=world.embedder.model,
    )
    add_facts(world.store, gone)
    await world.learn(
        "I am Anna Duarte, I have my home in Lisbon.",
        facts=facts(fact(HOME, sources=[1])),
        reflections=reflections(),
    )
    assert {each.content for each in world.facts(world.cast.anna_scope)} == {LISBON, HOME}
