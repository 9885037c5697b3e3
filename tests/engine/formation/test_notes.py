"""A text that is given to be remembered: facts without a conversation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edenmem.engine.reports import FormationReport
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, NotFoundError, ProviderTimeout, ScopeError, UsageError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from tests.engine.formation.conftest import World
from tests.support.memory import facts_of, set_policy
from tests.support.runtime import ANYTHING_GOES, make_runtime

TEXT = "Anna keeps the spare key of the boathouse. The boathouse opens at 9."


def fact(content: str, scope: str = "user") -> dict[str, Any]:
    return {
        "content": content,
        "scope": scope,
        "shard": None,
        "private": False,
        "sources": [1],
    }


def service(world: World, **formation: Any) -> MemoryService:
    formation_settings = msgspec.structs.replace(ANYTHING_GOES, **formation)
    settings = Settings(formation=formation_settings)
    return MemoryService.from_runtime(
        make_runtime(
            world.store, settings, llm=world.llm, embedder=world.embedder, clock=world.clock
        )
    )


async def remember(world: World, text: str = TEXT, **options: Any) -> FormationReport:
    cast = world.cast
    formation = options.pop("formation", {})
    options = {"agent_id": cast.eve.id, "user_id": cast.anna.id, **options}
    return await service(world, **formation).remember(text, **options)


@pytest.fixture
def scripted(world: World) -> World:
    world.llm.script(
        "facts",
        {
            "facts": [
                fact("Anna keeps the spare key of the boathouse."),
                fact("The boathouse opens at 9.", "agent"),
            ]
        },
    )
    return world


async def test_its_facts_are_kept_where_they_belong(scripted: World) -> None:
    report = await remember(scripted)
    assert (report.outcome, report.session_id, report.facts_added) == ("applied", "", 2)
    (of_anna,) = facts_of(scripted.store, scripted.cast.anna_scope)
    (of_agent,) = facts_of(scripted.store, Scope.agent(scripted.cast.eve.id))
    assert of_anna.content == "Anna keeps the spare key of the boathouse."
    assert of_agent.content == "The boathouse opens at 9."
    for made in (of_anna, of_agent):
        assert (made.session_id, made.source_message_ids, made.formation_id) == (None, (), None)
        assert made.embedding_model == scripted.embedder.model
    assert list(scripted.store.host.sessions(agent_id=scripted.cast.eve.id)) == [
        scripted.cast.session
    ]


async def test_the_same_text_again_adds_nothing(scripted: World) -> None:
    await remember(scripted)
    report = await remember(scripted)
    assert (report.facts_added, report.facts_skipped) == (0, 2)
    assert len(facts_of(scripted.store, scripted.cast.anna_scope)) == 1


async def test_without_a_user_no_users_memory_is_offered_or_taken(scripted: World) -> None:
    report = await remember(scripted, user_id=None)
    assert report.facts_added == 1
    assert facts_of(scripted.store, scripted.cast.anna_scope) == []
    (rejected,) = (each for each in report.decisions if each.action == "REJECTED")
    assert rejected.content == "Anna keeps the spare key of the boathouse."


async def test_a_dry_run_asks_and_writes_nothing_but_the_cost(scripted: World) -> None:
    report = await remember(scripted, dry_run=True)
    assert report.outcome == "dry_run"
    assert report.changes is not None
    assert len(report.changes.changes) == 2
    assert facts_of(scripted.store, scripted.cast.anna_scope) == []


async def test_a_long_text_is_read_in_parts_and_none_is_left_out(world: World) -> None:
    seen: list[str] = []

    def answer(request: Any) -> dict[str, Any]:
        seen.append(request.user)
        return {"facts": []}

    world.llm.script("facts", answer)
    words = [f"word{number}" for number in range(400)]
    formation = {"max_characters": 500, "message_characters": 100}
    await remember(world, " ".join(words), formation=formation)
    assert len(seen) > 5
    shown = "\n".join(seen)
    assert [word for word in words if word not in shown] == []
    assert "left out" not in shown


async def test_what_was_kept_before_a_failure_stays(scripted: World) -> None:
    formation = {"max_characters": 60, "message_characters": 60}
    scripted.llm.script(
        "facts",
        [
            {"facts": [fact("Anna keeps the spare key of the boathouse.")]},
            ProviderTimeout("the model did not answer"),
        ],
    )
    text = "Anna keeps the spare key of the boathouse.\n\nThe boathouse opens at 9 on Sundays."
    with pytest.raises(ProviderTimeout):
        await remember(scripted, text, formation=formation)
    assert len(facts_of(scripted.store, scripted.cast.anna_scope)) == 1


async def test_bad_input_is_an_error_and_asks_no_model(world: World) -> None:
    with pytest.raises(UsageError, match="the text to remember is empty"):
        await remember(world, " \n")
    with pytest.raises(NotFoundError, match="agent not found"):
        await remember(world, agent_id=new_id())
    with pytest.raises(NotFoundError, match="user not found"):
        await remember(world, user_id=new_id())
    for scope in (world.cast.anna_scope, Scope.agent(world.cast.eve.id)):
        set_policy(world.store, scope, active=False)
    with pytest.raises(ScopeError, match="takes a fact"):
        await remember(world)
    assert world.llm.requests == []


async def test_without_a_model_it_says_what_stores_a_fact_as_it_is(world: World) -> None:
    alone = MemoryService.from_runtime(make_runtime(world.store, Settings()))
    with pytest.raises(ConfigError) as error:
        await alone.remember(TEXT, agent_id=world.cast.eve.id)
    assert "edenmem fact add" in (error.value.hint or "")
