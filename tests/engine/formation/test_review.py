"""What breaks a rule is sent back once, all together, and then kept or refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem.acceptance.evidence import Candidate, Evidence, Judgment, Violation
from edenmem.engine.formation import deduplication, review
from edenmem.errors import (
    BudgetExceeded,
    ProviderAuthError,
    ProviderError,
    ProviderTimeout,
    ReplayMiss,
)
from edenmem.models.formation import FormationStatus
from tests.engine.formation.conftest import World, fact, facts, reflections
from tests.support.memory import add_fact

LISBON = "Anna Duarte lives in Lisbon."
BAD = "Anna WRONG lives on the moon."


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Candidate, Evidence, bool]]:
    """What was judged, by a rule that is easy to break: no capitals, but WEAK passes at last."""
    seen: list[tuple[Candidate, Evidence, bool]] = []

    def judge(
        candidate: Candidate, evidence: Evidence, settings: object, *, is_last: bool = False
    ) -> Judgment:
        seen.append((candidate, evidence, is_last))
        violations = [
            Violation(word.lower(), f"{word} was not said")
            for word in ("WRONG", "FALSE", "WEAK")
            if word in candidate.content and not (is_last and word == "WEAK")
        ]
        return Judgment(
            content=candidate.content,
            sources=candidate.sources,
            violations=tuple(violations),
            is_weak=is_last and "WEAK" in candidate.content,
        )

    for step in (review, deduplication):
        monkeypatch.setattr(step, "judge", judge)
    return seen


def rewritten(*items: tuple[int, str]) -> dict[str, Any]:
    return {"items": [{"item": n, "sources": [1], "content": content} for n, content in items]}


def rejected(report: Any) -> list[tuple[str, str, str]]:
    return [
        (each.content, each.rule, each.reason)
        for each in report.decisions
        if each.action == "REJECTED"
    ]


async def test_what_breaks_a_rule_is_written_again_and_keeps_its_place(world: World) -> None:
    said = [BAD, LISBON, "Anna WRONG has a FALSE dog.", "Anna WRONG rows.", "Anna WRONG sings."]
    world.llm.script("facts", facts(*(fact(each, sources=[2]) for each in said)))
    again = [(3, "Anna WRONG rows!"), (1, "Anna Duarte rows."), (1, "No."), (9, "No.")]
    world.llm.script("rewrite", rewritten(*again))
    messages = world.say("I live in Lisbon and row.", "I sing.")
    report = await world.form_one()
    assert world.llm.tasks == ["facts", "rewrite", "reflections"]
    assert sorted(world.contents(world.cast.anna_scope)) == [LISBON, "Anna Duarte rows."]
    [rows] = [f for f in world.facts(world.cast.anna_scope) if f.content != LISBON]
    assert rows.source_message_ids == (messages[0].id,)
    left_out = "left out when sent back"
    assert rejected(report) == [
        (said[2], "wrong,false", f"WRONG was not said; FALSE was not said; {left_out}"),
        ("Anna WRONG rows!", "wrong", "WRONG was not said"),
        (said[4], "wrong", f"WRONG was not said; {left_out}"),
    ]
    [request] = world.llm.requests_for("rewrite")
    assert f"Item 1 (fact from 2, at most 30 words): {BAD}" in request.user
    assert "  Wrong: WRONG was not said; FALSE was not said" in request.user
    assert "I sing." in request.user
    assert LISBON not in request.user


async def test_a_formation_sends_back_once_at_most(world: World) -> None:
    world.llm.script("facts", facts(BAD))
    thoughts = ["Anna WRONG is shy.", "Anna WEAK is tall.", "Anna is kind."]
    world.llm.script("reflections", reflections(user=thoughts))
    world.say("I live in Lisbon.")
    report = await world.form_one()
    assert world.llm.tasks == ["facts", "rewrite", "reflections"]
    assert world.pending(world.cast.anna_scope) == thoughts[1:]
    assert rejected(report)[1] == (
        thoughts[0],
        "wrong",
        "reflection: WRONG was not said; not sent back: this formation already sent others back",
    )


async def test_reflections_are_sent_back_if_no_fact_was(world: World) -> None:
    world.llm.script("reflections", reflections(user=["WRONG."], session=["FALSE.", "Fine."]))
    world.llm.script("rewrite", rewritten((1, "Anna is kind.")))
    world.say("I live in Lisbon.")
    await world.form_one()
    assert world.pending(world.cast.anna_scope) == ["Anna is kind."]
    assert world.pending(world.cast.session_scope) == ["Fine."]
    [request] = world.llm.requests_for("rewrite")
    assert "Item 1 (reflection, at most 35 words): WRONG." in request.user


async def test_facts_and_reflections_of_one_call_are_sent_back_together(world: World) -> None:
    answer = {**facts(BAD, LISBON), "reflections": reflections(session=["FALSE."], user=["Kind."])}
    world.llm.script("single", answer)
    world.llm.script("rewrite", rewritten((1, "Anna rows."), (2, "A walk is planned.")))
    world.say("I live in Lisbon.")
    await world.form_one(extraction="single")
    assert world.llm.tasks == ["single", "rewrite"]
    assert world.contents(world.cast.anna_scope) == [LISBON, "Anna rows."]
    assert world.pending(world.cast.session_scope) == ["A walk is planned."]


@pytest.mark.parametrize("error", [ReplayMiss, ProviderError, ProviderTimeout, "no JSON"])
async def test_if_it_cannot_be_sent_back_it_is_refused_and_says_so(
    world: World, error: Any
) -> None:
    """So do answers from a file that has none for this: the miss is reported, the rest is kept."""
    world.llm.script("facts", facts(BAD, LISBON, "Anna WEAK is tall."))
    world.llm.script("rewrite", error)
    world.say("I live in Lisbon.")
    report = await world.form_one()
    assert report.outcome == "applied"
    stored = {fact.content: fact.weak for fact in world.facts(world.cast.anna_scope)}
    assert stored == {LISBON: False, "Anna WEAK is tall.": True}
    [(content, rule, reason)] = rejected(report)
    assert (content, rule) == (BAD, "wrong")
    assert reason == "WRONG was not said; could not be sent back"
    [decision] = [each for each in report.decisions if each.rule]
    assert decision.failure
    assert decision.explanation == f"{reason}: {decision.failure}"
    assert not any(each.failure for each in report.decisions if each != decision)


@pytest.mark.parametrize("error", [ProviderAuthError, BudgetExceeded])
async def test_a_model_that_answers_no_more_ends_the_run(
    world: World, error: type[ProviderError]
) -> None:
    world.llm.script("facts", facts(BAD, LISBON))
    world.llm.script("rewrite", error)
    world.say("I live in Lisbon.")
    with pytest.raises(error):
        await world.form()
    assert world.formation(FormationStatus.RELEASED).attempts == 0


async def test_a_merged_text_that_breaks_a_rule_is_not_merged(world: World) -> None:
    vector = world.embedder.vector(LISBON)
    embedded = {"embedding": vector, "embedding_model": world.embedder.model}
    add_fact(world.store, world.cast.anna_scope, LISBON, **embedded)
    new = "Anna Duarte lives in Lisbon by the river."
    world.llm.script("facts", facts(new))
    update = {"fact": "N1", "reason": "", "action": "UPDATE", "target": "E1", "content": BAD}
    world.llm.script("dedup", {"decisions": [update]})
    world.say("I live by the river.")
    report = await world.form_one()
    assert world.contents(world.cast.anna_scope) == sorted([LISBON, new])
    assert "WRONG was not said" in report.decisions[0].reason


@pytest.mark.parametrize(("word", "is_weak"), [("WEAK", True), ("now", False)])
async def test_a_merged_text_is_weak_if_what_is_new_in_it_is(
    world: World, word: str, is_weak: bool
) -> None:
    vector = world.embedder.vector(LISBON)
    embedded = {"embedding": vector, "embedding_model": world.embedder.model}
    add_fact(world.store, world.cast.anna_scope, LISBON, **embedded)
    new = f"Anna Duarte lives in Lisbon {word}."
    world.llm.script("facts", facts(new))
    world.llm.script("rewrite", ProviderError)
    update = {"fact": "N1", "reason": "", "action": "UPDATE", "target": "E1", "content": new + "!"}
    world.llm.script("dedup", {"decisions": [update]})
    world.say("I row.")
    await world.form_one()
    [stored] = world.facts(world.cast.anna_scope)
    assert (stored.content, stored.weak) == (new + "!", is_weak)


async def test_an_item_is_checked_against_all_that_the_model_was_shown(
    world: World, judged: list[tuple[Candidate, Evidence, bool]]
) -> None:
    world.llm.script("facts", facts(fact("The walk is near.", "agent", sources=[1, 9])))
    world.llm.script("reflections", reflections(user=["Kind."], session=["A walk."]))
    add_fact(world.store, world.cast.anna_scope, LISBON)
    [message] = world.say("The walk is near.")
    await world.form_one()
    (new, about_facts, _), (own, about_thoughts, _), (open_, _, _) = judged
    assert (new.kind, new.sources, new.is_shared) == ("fact", (1, 9), True)
    assert (own.kind, own.is_shared, open_.is_shared) == ("reflection", False, False)
    assert [each.id for each in about_facts.talk.messages] == [message.id]
    assert about_facts.talk is about_thoughts.talk  # read once for both
    assert about_facts.user == "anna"
    assert {"anna", "Eve", "eve"} <= set(about_facts.context)
    assert "Rolf is allergic to nuts." in about_facts.template
    assert "The walk is near." not in about_facts.template
    assert "Ines drinks coffee" in about_thoughts.template
    assert about_facts.memory == ()


async def test_nothing_is_no_item_whatever_rules_are_off(world: World) -> None:
    world.llm.script("facts", facts("", " \x00 ", LISBON))
    world.llm.script("reflections", reflections(user=["\n"]))
    world.say("I live in Lisbon.")
    report = await world.form_one()
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert world.pending(world.cast.anna_scope) == []
    assert [rule for _, rule, _ in rejected(report)] == ["statement"] * 3
