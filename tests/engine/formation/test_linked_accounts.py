"""What one account says, where the person has others: DESIGN's rules of who is who."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edenmem.engine.consolidation.consolidator import Consolidator
from edenmem.engine.history.undo import Undoer
from tests.engine.formation.conftest import World, decision, decisions, fact, facts, reflections
from tests.support.builders import ago, make_actor
from tests.support.memory import add_fact, add_reflection, consolidate, facts_of, set_policy
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.engine.reports import FormationReport

LISBON = "Anna lives in Lisbon."
PORTO = "Anna lives in Porto."


@pytest.fixture
def on_discord(world: World) -> World:
    """Anna writes from her second account."""
    world.cast.session = world.add_session([world.cast.eve], world.cast.anna_on_discord)
    return world


async def form(world: World, *contents: str) -> FormationReport:
    world.llm.script("facts", facts(*contents))
    world.say("I moved.", sender=world.cast.anna_on_discord.id)
    return await world.form_one(dedup_floor=0.0)


async def test_a_twin_under_another_account_is_a_duplicate_with_both_sources(
    on_discord: World,
) -> None:
    old = on_discord.know(on_discord.cast.anna_scope, LISBON, source_message_ids=("a" * 24,))
    report = await form(on_discord, LISBON)
    assert [each.action for each in report.decisions] == ["NONE"]
    assert on_discord.contents(on_discord.cast.discord_scope) == []
    [kept] = on_discord.facts(on_discord.cast.anna_scope)
    assert (kept.id, kept.version, kept.embedding) == (old.id, 2, old.embedding)
    [message] = on_discord.store.host.messages(on_discord.cast.session.id)
    assert kept.source_message_ids == ("a" * 24, message.id)
    (entry,) = [e for e in on_discord.store.log.audit() if e.action == "revise_fact"]
    Undoer(make_runtime(on_discord.store, actor=make_actor(command="undo"))).undo(entry.id)
    [back] = on_discord.facts(on_discord.cast.anna_scope)
    assert (back.source_message_ids, back.embedding) == (("a" * 24,), old.embedding)


@pytest.mark.parametrize("action", ["UPDATE", "DELETE"])
async def test_decisions_act_on_the_neighbor_where_it_is(on_discord: World, action: str) -> None:
    cast = on_discord.cast
    old = on_discord.know(cast.anna_scope, LISBON)
    on_discord.know(cast.bruno_scope, "Bruno lives in Lisbon.")
    on_discord.llm.script("dedup", decisions(decision(1, action, 1, PORTO)))
    await form(on_discord, PORTO)
    assert "Bruno" not in on_discord.llm.requests_for("dedup")[0].user
    if action == "UPDATE":
        [fact] = on_discord.facts(*cast.anna_scopes)
        assert (fact.id, fact.home, fact.content) == (old.id, cast.anna_scope, PORTO)
    else:
        [fact] = on_discord.facts(*cast.anna_scopes)
        assert (fact.home, fact.content) == (cast.discord_scope, PORTO)


async def test_a_paused_account_is_compared_word_for_word_and_never_changed(
    on_discord: World,
) -> None:
    cast = on_discord.cast
    old = on_discord.know(cast.anna_scope, LISBON)
    set_policy(on_discord.store, cast.anna_scope, active=False)
    await form(on_discord, LISBON, PORTO)
    assert on_discord.facts(cast.anna_scope) == [old]
    assert on_discord.contents(cast.discord_scope) == [PORTO]
    assert not on_discord.llm.requests_for("dedup")


async def test_retention_counts_the_facts_of_all_accounts(on_discord: World) -> None:
    cast = on_discord.cast
    for days, scope in ((9, cast.discord_scope), (8, cast.anna_scope), (7, cast.anna_scope)):
        add_fact(on_discord.store, scope, f"From {days} days ago.", formed_at=ago(days=days))
    set_policy(on_discord.store, cast.discord_scope, fact_buffer_max=2)
    on_discord.llm.script("dedup", decisions())
    await form(on_discord, PORTO)
    assert on_discord.contents(*cast.anna_scopes) == [PORTO, "From 7 days ago."]


async def test_what_other_accounts_say_is_known_already(on_discord: World) -> None:
    cast, store = on_discord.cast, on_discord.store
    consolidate(store, cast.anna_scope, "Plays the cello.", expected_version=0)
    add_reflection(store, cast.anna_scope, "Anna likes teal.")
    on_discord.llm.script("reflections", reflections(user=["Anna likes teal.", "Anna is early."]))
    report = await form(on_discord)
    assert on_discord.pending(cast.discord_scope) == ["Anna is early."]
    assert any("already known" in (each.reason or "") for each in report.decisions)
    shown = on_discord.llm.requests_for("reflections")[0].user
    assert "Plays the cello." in shown
    assert shown.count("### user") == 1

    on_discord.llm.script("consolidate", {"text": "Is early."})
    consolidator = Consolidator(make_runtime(store, llm=on_discord.llm))
    written = await consolidator.consolidate(cast.discord_scope, force=True)
    assert written.outcome == "written"
    prompt = on_discord.llm.requests_for("consolidate")[0].user
    assert "Plays the cello." in prompt.split("## What other texts about the same user say")[1]
    assert on_discord.pending(cast.anna_scope) == ["Anna likes teal."]
    texts = store.memory.consolidations(cast.anna_scopes)
    assert [texts[scope].consolidated_content for scope in cast.anna_scopes] == [
        "Plays the cello.",
        "Is early.",
    ]
    assert facts_of(store, *cast.anna_scopes) == []


async def test_a_fact_goes_to_the_account_that_said_it(world: World) -> None:
    """A reflection, which has no single source, goes to that of the account that spoke last."""
    cast = world.cast
    said = [
        fact(LISBON, sources=[1]),
        fact("Anna rows.", sources=[2]),
        fact("Anna sings.", sources=[1, 3]),
        fact("Anna paints."),
    ]
    world.llm.script("facts", facts(*said))
    world.llm.script("reflections", reflections(user=["Anna likes it short."]))
    world.say("I live in Lisbon.")
    world.say("I row.", sender=cast.anna_on_discord.id)
    await world.learn("I sing.", sender=cast.anna_on_discord.id)
    assert world.contents(cast.anna_scope) == [LISBON]
    assert world.contents(cast.discord_scope) == ["Anna paints.", "Anna rows.", "Anna sings."]
    assert world.pending(cast.discord_scope) == ["Anna likes it short."]
    assert world.pending(cast.anna_scope) == []
    assert world.llm.requests_for("facts")[0].user.count("- user") == 1


async def test_what_a_paused_account_said_goes_to_no_other(world: World) -> None:
    cast = world.cast
    set_policy(world.store, cast.anna_scope, active=False)
    world.llm.script("facts", facts(fact(LISBON, sources=[1]), fact("Anna rows.", sources=[2])))
    world.say("I live in Lisbon.")
    report = await world.learn("I row.", sender=cast.anna_on_discord.id)
    assert world.contents(*cast.anna_scopes) == ["Anna rows."]
    [rejected] = [each for each in report.decisions if each.action == "REJECTED"]
    assert (rejected.content, rejected.rule) == (LISBON, "scope")


async def test_facts_of_both_accounts_count_once_against_both_limits(world: World) -> None:
    cast = world.cast
    for scope in cast.anna_scopes:
        set_policy(world.store, scope, fact_buffer_max=3)
        for number in (1, 2):
            add_fact(world.store, scope, f"{scope.owner} {number}", formed_at=ago(days=9))
    said = [fact(f"Anna has {n} cats.", sources=[1 + n % 2]) for n in range(9)]
    world.llm.script("facts", facts(*said))
    world.say("I have cats.")
    report = await world.learn(
        "I have cats.", sender=cast.anna_on_discord.id, facts_per_scope=4, base_characters=20
    )
    assert report.facts_added == 8  # one over the limit of 2 × 4
    assert len(world.contents(*cast.anna_scopes)) == 8
    assert report.facts_removed == 4
