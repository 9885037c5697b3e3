"""Ranges that are longer than a model's context, and ranges that no model answers in time."""

from __future__ import annotations

import re
from typing import Any

import pytest

from edenmem.errors import ContextOverflow, ProviderTimeout, StoreError
from edenmem.models.formation import FormationStatus, Trigger
from edenmem.models.statistics import sum_by_model
from tests.engine.formation.conftest import World, decision, decisions, facts, reflections
from tests.support.interposed import Crashing

_SAID = re.compile(r"tile (\d+) is green")


def conversation_in(request: Any) -> str:
    """The conversation that a request shows."""
    begin = request.user.partition("<<<conversation")[2]
    return str(begin.partition("<<<end of conversation")[0])


def answers(most: int, make: Any) -> Any:
    """A model whose context takes ``most`` of the numbered messages."""

    def answer(request: Any) -> Any:
        numbers = _SAID.findall(conversation_in(request))
        if len(numbers) > most:
            raise ContextOverflow("the request is too long", hint="lower a setting")
        return make(numbers)

    return answer


def tiles(numbers: list[str]) -> dict[str, Any]:
    return facts(*(f"Anna Duarte said that tile {number} is green." for number in numbers))


def thoughts(numbers: list[str]) -> dict[str, Any]:
    return reflections(
        user=["Anna Duarte likes tiles.", f"Anna Duarte counted up to {numbers[-1]}."]
    )


def say_tiles(world: World, count: int, more: str = "") -> None:
    world.say(*(f"I say: tile {number} is green.{more}" for number in range(count)))


async def test_a_range_that_is_too_long_is_formed_in_parts(world: World) -> None:
    """Known failure 72: a context overflow burned three tries."""
    say_tiles(world, 10)
    world.llm.script("facts", answers(3, tiles))
    reports = await world.form(trigger=Trigger.COLD, dedup=False)
    assert [report.outcome for report in reports] == ["applied"] * len(reports)
    assert sum(report.messages for report in reports) == 10
    assert max(report.messages for report in reports) <= 3
    assert (reports[0].split_off, reports[0].left) == (8, 8)
    assert reports[-1].left == 0
    assert len(world.contents(world.cast.anna_scope)) == 10
    assert {each.attempts for each in world.formations()} == {0}
    # What fitted once is the measure for the rest.
    assert len(world.llm.requests_for("facts")) <= len(reports) + 3
    assert (
        world.store.formations.backlog(world.cast.session.id, world.cast.eve.id, limit=9).total == 0
    )


async def test_what_a_crash_leaves_of_a_split_range_is_formed_by_the_next(world: World) -> None:
    say_tiles(world, 8)
    world.llm.script("facts", answers(4, tiles))

    with pytest.raises(StoreError):
        await world.form(store=Crashing(world.store, "move", after=True), dedup=False)
    assert len(world.formation(FormationStatus.RELEASED).message_ids) == 4
    reports = await world.form(dedup=False)
    assert [(report.outcome, report.messages) for report in reports] == [("applied", 4)] * 2
    assert len(world.contents(world.cast.anna_scope)) == 8


async def test_a_dry_run_shows_the_part_that_fits(world: World) -> None:
    say_tiles(world, 8)
    world.llm.script("facts", answers(4, tiles))
    shown = await world.form_one(dry_run=True)
    assert (shown.outcome, shown.messages, shown.split_off) == ("dry_run", 4, 4)
    assert world.formations() == []
    [total] = [
        each
        for each in sum_by_model(world.store.usage.usage_by_day())
        if each.model != "fake-embedder"
    ]
    assert total.calls == 2  # facts and reflections: the refused one cost nothing


async def test_a_message_that_is_too_long_alone_is_read_in_parts(world: World) -> None:
    """Known failure 102: its middle was cut."""
    told = [f"I say: tile {number} is green. " + "so it is " * 90 for number in range(9)]
    [message] = world.say("".join(told))

    def answer(request: Any) -> Any:
        if len(conversation_in(request)) > 3000:
            raise ContextOverflow("the request is too long", hint="lower a setting")
        return tiles(_SAID.findall(conversation_in(request)))

    world.llm.script("facts", answer)
    await world.form_one(dedup=False)
    assert len(world.contents(world.cast.anna_scope)) == 9
    assert {fact.source_message_ids for fact in world.facts(world.cast.anna_scope)} == {
        (message.id,)
    }


async def test_what_fits_in_no_way_fails_with_the_setting(world: World) -> None:
    world.say("I live in Lisbon. " * 200)
    overflow = ContextOverflow("the request is too long", hint="or raise num_ctx")
    world.llm.script("facts", overflow)
    reports = []
    for _ in range(3):
        reports.append(await world.form_one())
        world.clock.advance(hours=1)
    assert [report.outcome for report in reports] == ["waiting", "waiting", "failed"]
    error = world.formation(FormationStatus.FAILED).error or ""
    for setting in ("num_ctx", "formation.max_characters"):
        assert setting in error


async def test_reflections_that_are_too_long_are_formed_in_parts_of_the_range(world: World) -> None:
    say_tiles(world, 8, " So it is." * 20)
    world.llm.script("facts", answers(8, lambda numbers: tiles(numbers[:4])))
    world.llm.script("reflections", answers(3, thoughts))
    report = await world.form_one(dedup=False)
    assert (report.outcome, report.messages, report.facts_added) == ("applied", 8, 4)
    found = world.pending(world.cast.anna_scope)
    assert found.count("Anna Duarte likes tiles.") == 1
    assert "Anna Duarte counted up to 7." in found
    assert len(world.llm.requests_for("facts")) == 1

    say_tiles(world, 1)
    overflow = ContextOverflow("the request is too long", hint="or raise num_ctx")
    world.llm.script("reflections", overflow)
    failed = await world.form_one(dedup=False)
    assert failed.outcome == "waiting"
    assert failed.error is not None
    assert failed.error.startswith("reflections: ")
    assert "word_limit" in failed.error


@pytest.mark.parametrize("step", ["facts", "reflections"])
async def test_a_range_that_times_out_while_the_model_answers_counts_its_tries(
    world: World, step: str
) -> None:
    """Known failure: time-outs were nobody's fault, and went on for ever."""
    world.say("I live in Lisbon.")
    world.llm.script(step, [ProviderTimeout("it did not answer within 60 s")] * 4)
    with pytest.raises(ProviderTimeout):  # nothing answers: an outage
        await world.form()
    assert world.formation(FormationStatus.RELEASED).attempts == 0

    world.llm.script("doctor", {"ok": True})
    outcomes = []
    for _ in range(3):
        outcomes.append((await world.form_one()).outcome)
        world.clock.advance(hours=1)
    assert outcomes == ["waiting", "waiting", "failed"]
    error = world.formation(FormationStatus.FAILED).error or ""
    assert "within 60 s" in error
    assert "formation.max_characters" in error


async def test_an_embedder_that_is_down_is_an_outage(world: World) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts("Anna Duarte lives in Lisbon."))
    world.llm.script("doctor", {"ok": True})
    world.embedder.failures = [ProviderTimeout("it did not answer")] * 2
    with pytest.raises(ProviderTimeout):
        await world.form()
    assert world.formation(FormationStatus.RELEASED).attempts == 0


async def test_facts_that_are_too_many_to_compare_at_once_are_compared_in_parts(
    world: World,
) -> None:
    texts = [f"Anna Duarte owns the {name} boat." for name in ("red", "blue", "green", "grey")]
    for text in texts:
        world.know(world.cast.anna_scope, text)
    world.say("I painted my boats.")
    world.llm.script("facts", facts(*(f"{text} It is new." for text in texts)))

    def compare(request: Any) -> Any:
        asked = sorted(set(re.findall(r"\bN(\d)\b", request.user)))
        if len(asked) > 1:
            raise ContextOverflow("the request is too long", hint="lower a setting")
        elsewhere = decision(int(asked[0]) % 4 + 1, "NONE", 1)  # of a fact that was not asked about
        target = int(re.findall(r"\bE(\d+)\b", request.user)[0])
        return decisions(elsewhere, decision(int(asked[0]), "NONE", target))

    world.llm.script("dedup", compare)
    report = await world.form_one(dedup_floor=0.0)
    assert [each.action for each in report.decisions] == ["NONE"] * 4
    assert world.contents(world.cast.anna_scope) == sorted(texts)
    assert len(world.llm.requests_for("dedup")) == 7  # one, two halves, four
