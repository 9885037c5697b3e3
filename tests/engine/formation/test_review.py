"""What is in doubt is verified once, all together, and then kept, corrected, marked or dropped."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem.errors import (
    BudgetExceeded,
    ProviderAuthError,
    ProviderError,
    ProviderTimeout,
    ReplayMiss,
)
from edenmem.models.formation import FormationStatus
from tests.engine.formation.conftest import World, fact, facts, reflections

CHECKED = {"check": True, "facts_per_scope": 50}
SAID = (
    "I moved to Lisbon on Monday, to 14 Rua do Sol, with my dog Pixel.",
    "I'm allergic to walnuts. Almonds do no harm.",
    "If I win, I'll buy a boat, haha.",
)
LISBON = fact("Anna lives at 14 Rua do Sol in Lisbon.", sources=[1], quote="to 14 Rua do Sol")
DENIED = fact("Anna is not allergic to walnuts.", sources=[2], quote="I'm allergic to walnuts")
BOAT = fact("Anna is going to buy a boat.", sources=[3], quote="I'll buy a boat, haha")
OLD = fact("Pixel is 9 years old.", sources=[1], quote="with my dog Pixel")
BROTHER = fact("Anna's brother Rafael has a dog.", sources=[1], quote="with my dog Pixel")


def verdicts(*items: tuple[int, str, str | None]) -> dict[str, Any]:
    return {
        "items": [
            {"item": n, "about": "Anna", "verdict": verdict, "sources": [2], "content": content}
            for n, verdict, content in items
        ]
    }


def rejected(report: Any) -> dict[str, str]:
    return {each.content: each.rule for each in report.decisions if each.action == "REJECTED"}


async def test_only_what_is_in_doubt_is_shown_again_all_together(world: World) -> None:
    world.say(*SAID)
    world.llm.script("facts", facts(LISBON, DENIED, BOAT, BROTHER))
    world.llm.script(
        "verify",
        verdicts(
            (3, "keep", None), (1, "correct", "Anna is allergic to walnuts."), (2, "drop", "")
        ),
    )
    report = await world.form_one(**CHECKED)
    assert world.llm.tasks == ["facts", "verify", "reflections"]
    stored = {
        each.content: (each.quote, each.unconfirmed) for each in world.facts(world.cast.anna_scope)
    }
    assert stored == {
        LISBON["content"]: ("to 14 Rua do Sol", ""),
        "Anna is allergic to walnuts.": ("I'm allergic to walnuts", ""),
        BROTHER["content"]: ("with my dog Pixel", ""),
    }
    assert rejected(report) == {BOAT["content"]: "verification,hedge"}
    assert {each.reason for each in report.decisions if "walnuts" in each.content} == {
        "no similar fact is known; corrected; it said: Anna is not allergic to walnuts."
    }
    [request] = world.llm.requests_for("verify")
    items = request.user.partition("## Items")[2]
    assert f"Item 1 (fact from 2): {DENIED['content']}" in items
    assert '("I\'m allergic to walnuts")' in items
    assert "In doubt: denies something that its sources do not deny" in items
    assert LISBON["content"] not in items


async def test_all_prompts_of_a_formation_share_their_beginning(world: World) -> None:
    await world.learn(*SAID, facts=facts(LISBON, DENIED), **CHECKED)
    first, second, third = world.llm.requests
    assert first.system == second.system == third.system
    begins = {each.user.partition("# Task")[0] for each in world.llm.requests}
    assert len(begins) == 1
    assert SAID[2] in begins.pop()


@pytest.mark.parametrize("error", [ReplayMiss, ProviderError, ProviderTimeout, "no JSON", None])
async def test_what_stays_in_doubt_is_marked(world: World, error: Any) -> None:
    """Known failure 105. Also if the model cannot be asked; its error is reported."""
    world.say(*SAID)
    world.llm.script("facts", facts(LISBON, DENIED))
    world.llm.script("verify", error or {"items": []})
    report = await world.form_one(**CHECKED)
    assert report.outcome == "applied"
    doubt = "denies something that its sources do not deny"
    stored = {each.content: each.unconfirmed for each in world.facts(world.cast.anna_scope)}
    assert stored == {LISBON["content"]: "", DENIED["content"]: doubt}
    [decision] = [each for each in report.decisions if each.unconfirmed]
    assert decision.unconfirmed == doubt


@pytest.mark.parametrize("error", [ProviderAuthError, BudgetExceeded])
async def test_a_model_that_answers_no_more_ends_the_run(
    world: World, error: type[ProviderError]
) -> None:
    world.say(*SAID)
    world.llm.script("facts", facts(DENIED))
    world.llm.script("verify", error)
    with pytest.raises(error):
        await world.form(**CHECKED)
    assert world.formation(FormationStatus.RELEASED).attempts == 0


@pytest.mark.parametrize(
    "content",
    [
        "Anna is allergic to walnuts and cashews from Brazil.",
        "Anna has been allergic to walnuts since 2019.",
        "Anna's PIN is 4711.",
        "Is Anna allergic to walnuts?",
        "",
    ],
)
async def test_a_correction_adds_nothing_and_passes_the_rules(world: World, content: str) -> None:
    world.say(*SAID)
    world.llm.script("facts", facts(DENIED))
    world.llm.script("verify", verdicts((1, "correct", content)))
    await world.form_one(**CHECKED)
    [stored] = world.facts(world.cast.anna_scope)
    assert stored.content == DENIED["content"]
    assert "needs a correction; the one offered" in stored.unconfirmed


@pytest.mark.parametrize(("verify", "asked"), [("off", 0), ("doubtful", 1), ("all", 2)])
async def test_what_is_verified_is_a_setting(world: World, verify: str, asked: int) -> None:
    await world.learn(*SAID, facts=facts(LISBON, DENIED), verify=verify, **CHECKED)
    requests = world.llm.requests_for("verify")
    assert sum(request.user.count("\nItem ") - 2 for request in requests) == asked


async def test_a_fact_for_everybody_that_names_a_user_becomes_theirs(world: World) -> None:
    """Known failure 106: one user's life reached others through the agent."""
    world.say("I have diabetes.", "The harbor opens at 9.")
    private = fact("anna has diabetes.", "agent", sources=[1], quote="I have diabetes")
    public = fact("The harbor opens at 9.", "agent", sources=[2], quote="The harbor opens at 9")
    world.llm.script("facts", facts(private, public))
    await world.form_one(**CHECKED)
    assert world.contents(world.cast.anna_scope) == ["anna has diabetes."]
    assert world.contents(world.cast.agent_scope) == ["The harbor opens at 9."]
    assert world.facts(world.cast.anna_scope)[0].unconfirmed == ""


async def test_what_was_said_in_confidence_is_kept_for_its_speaker(world: World) -> None:
    world.say("Please keep it to yourself: the harbor sells its crane.")
    told = {"content": "The harbor sells its crane.", "sources": [1], "private": True}
    secret = fact("The harbor sells its crane.", "agent", sources=[1], private=True)
    world.llm.script("facts", facts(secret))
    thought = {**told, "content": "The harbor is short of money, as anna fears."}
    world.llm.script("reflections", {**reflections(), "agent": [thought]})
    await world.form_one()
    assert world.contents(world.cast.agent_scope) == []
    assert world.contents(world.cast.anna_scope) == ["The harbor sells its crane."]
    assert world.store.memory.pending(world.cast.agent_scope) == []
    assert [each.private for each in world.store.memory.pending(world.cast.anna_scope)] == [True]


async def test_reflections_cite_messages_and_are_verified(world: World) -> None:
    messages = world.say(*SAID)
    thought = {"content": "Anna Rossi settles in Lisbon.", "sources": [1], "private": False}
    world.llm.script("reflections", {**reflections(), "user": [thought]})
    await world.form_one(**CHECKED)
    [stored] = world.store.memory.pending(world.cast.anna_scope)
    assert stored.source_message_ids == (messages[0].id,)
    assert stored.unconfirmed == "'Rossi' is not in the messages"


async def test_a_merged_text_that_adds_something_is_not_merged(world: World) -> None:
    known = "Anna Duarte lives in Lisbon."
    world.know(world.cast.anna_scope, known)
    new = "Anna Duarte lives in Lisbon by the river."
    world.llm.script("facts", facts(new))
    bad = "Anna Duarte lives in Lisbon by the river Tejo."
    update = {"fact": "N1", "reason": "", "action": "UPDATE", "target": "E1", "content": bad}
    world.llm.script("dedup", {"decisions": [update]})
    report = await world.learn("I live by the river.")
    assert world.contents(world.cast.anna_scope) == sorted([known, new])
    assert "adds the name 'Tejo'" in report.decisions[0].reason


async def test_nothing_is_no_item_whatever_is_switched_off(world: World) -> None:
    report = await world.learn(
        "I live in Lisbon.",
        facts=facts("", " \x00 ", "Anna lives in Lisbon."),
        reflections=reflections(user=["\n"]),
    )
    assert world.contents(world.cast.anna_scope) == ["Anna lives in Lisbon."]
    assert world.pending(world.cast.anna_scope) == []
    assert [each.rule for each in report.decisions if each.rule] == ["statement"] * 3
