"""The whole road of a range, with a scripted model on a real store."""

from typing import Any

import pytest

from edenmem.engine.history.reader import fact_why
from edenmem.engine.reports import FormationReport
from edenmem.errors import ConfigError
from edenmem.models.changes import SetAgentToggles
from edenmem.models.formation import FormationStatus, Trigger
from edenmem.models.host import Message
from edenmem.models.memory import content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import LLMSettings, ScopeSettings, ScopesSettings, Settings
from tests.engine.formation.conftest import World, decision, decisions, fact, facts, reflections
from tests.support.builders import make_message, make_user, revision, some
from tests.support.memory import add_fact, add_reflection, applied, consolidate, set_policy

LISBON = "Anna Duarte lives in Lisbon."
WALK = "The Lantern Walk is on 12 December 2026."


def state(world: World) -> dict[str, Any]:
    """All that a dry run must leave as it is."""
    return {
        "counts": world.store.database.info().counts,
        "backlog": world.store.formations.backlog(
            world.cast.session.id, world.cast.eve.id, limit=999
        ).total,
    }


# -- what comes of it ----------------------------------------------------------------------------


async def test_facts_and_reflections_come_into_memory_with_their_sources(world: World) -> None:
    messages = world.say("I am Anna Duarte, I live in Lisbon.", "The walk is on 12 December.")
    trigger = make_message(world.cast.session, "Wake up.", trigger=True)
    world.store.host.add_messages(world.cast.session.id, [trigger])
    world.llm.script("facts", facts(fact(LISBON, sources=[1, 7]), fact(WALK, "agent", sources=[])))
    world.llm.script(
        "reflections",
        reflections(agent=["The Lantern Walk is near."], user=["Anna likes it short."]),
    )

    report = await world.form_one()

    assert report.outcome == "applied"
    assert (report.messages, report.left, report.facts_added) == (3, 0, 2)
    assert report.reflections == {"agent": 1, "user": 1}
    [about_anna] = world.facts(world.cast.anna_scope)
    assert about_anna.content == LISBON
    assert about_anna.hash == content_hash(LISBON)
    assert about_anna.source_message_ids == (messages[0].id,)
    [about_walk] = world.facts(world.cast.agent_scope)  # it names no message: the whole range
    assert about_walk.source_message_ids == tuple(message.id for message in messages)
    why = fact_why(world.store, about_anna.id)
    assert [message.content for message in why.source.messages] == [messages[0].content]
    assert about_anna.session_id == world.cast.session.id
    assert about_anna.formation_id == report.formation_id
    assert about_anna.embedding == world.embedder.vector(LISBON)
    assert about_anna.embedding_model == world.embedder.model
    assert set(world.embedder.roles) == {"passage"}, "facts are compared with facts"
    assert about_walk.content == WALK
    assert world.pending(world.cast.agent_scope) == ["The Lantern Walk is near."]
    assert world.pending(world.cast.anna_scope) == ["Anna likes it short."]
    formation = world.formation(FormationStatus.APPLIED)
    assert formation.changes is None
    assert formation.counts["facts"] == 2
    assert [call.task for call in formation.usage] == ["facts", "embed", "reflections"]
    assert report.usage == formation.usage


async def test_a_formation_asks_twice_and_once_more_only_to_compare(world: World) -> None:
    await world.learn("I live in Lisbon.", facts=facts(LISBON))
    assert world.llm.tasks == ["facts", "reflections"]

    world.llm.script("facts", facts("Anna Duarte lives in Porto now."))
    world.llm.script("dedup", decisions(decision(1, "DELETE", 1)))
    await world.learn("I moved to Porto.")
    assert world.llm.tasks[2:] == ["facts", "dedup", "reflections"]


async def test_a_fact_tells_every_session_that_touched_it(world: World) -> None:
    world.llm.script("facts", facts(LISBON))
    (first,) = world.say("I live in Lisbon.")
    await world.form_one()
    other = world.add_session([world.cast.eve], world.cast.anna)
    (second,) = world.say("I moved to Porto.", session=other)
    world.llm.script("facts", facts("Anna Duarte lives in Porto now."))
    merged = "Anna Duarte lived in Lisbon and lives in Porto now."
    world.llm.script("dedup", decisions(decision(1, "UPDATE", 1, merged)))
    await world.form_one(session=other)
    (fact_id,) = (each.id for each in world.facts(world.cast.anna_scope))

    why = fact_why(world.store, fact_id)

    assert why.fact.content == merged
    assert (why.source.session_id, why.source.messages) == (world.cast.session.id, (first,))
    assert why.source.missing_message_ids == ()
    assert [(each.session_id, each.messages) for each in why.other_sources] == [
        (other.id, (second,))
    ]
    assert [each.action for each in why.decisions] == ["ADD"]
    assert [each.action for each in why.changes] == ["add_fact", "revise_fact"]


async def test_requests_name_the_conversation_and_not_its_ids(world: World) -> None:
    await world.learn("Hello, I am Anna.")
    await world.learn("I live in Lisbon.")
    assert [request.key for request in world.llm.requests_for("facts")] == [
        "monday-chat/eve/1",
        "monday-chat/eve/2",
    ]
    for request in world.llm.requests:
        for thing in (world.cast.session, world.cast.eve, world.cast.anna):
            assert thing.id not in request.system + request.user


async def test_the_fast_model_sees_no_memory_and_the_slow_one_does(world: World) -> None:
    add_reflection(world.store, world.cast.anna_scope, "Anna collects tiles.")
    consolidate(world.store, world.cast.agent_scope, "Eve looks after walks.", expected_version=0)
    await world.learn("I live in Lisbon.", facts=facts(LISBON))
    [first] = world.llm.requests_for("facts")
    [second] = world.llm.requests_for("reflections")
    for known in ("Anna collects tiles.", "Eve looks after walks."):
        assert known not in first.user
        assert known in second.user
    assert LISBON in second.user


async def test_one_call_does_both_if_so_configured(world: World) -> None:
    answer = {
        **facts(LISBON),
        "reflections": reflections(session=["Anna plans a walk."], user=[LISBON]),
    }
    world.llm.script("single", answer)
    report = await world.learn("I live in Lisbon.", extraction="single")
    assert world.llm.tasks == ["single"]
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert report.reflections == {"session": 1}  # the other one is a fact already


async def test_without_an_embedder_equal_facts_are_still_known(world: World) -> None:
    world.llm.script("facts", facts(LISBON))
    for _ in range(2):
        report = await world.learn("I live in Lisbon.", embedder=None)
    assert (report.facts_added, report.facts_skipped) == (0, 1)
    [only] = world.facts(world.cast.anna_scope)
    assert only.embedding is None
    assert only.embedding_model is None


async def test_each_agent_of_a_session_forms_its_own_memory(world: World) -> None:
    vela = world.cast.add_agent("vela")
    session = world.add_session([world.cast.eve, vela], world.cast.anna)
    world.llm.script("facts", facts(LISBON))
    world.say("I live in Lisbon.", session=session)
    for agent in (world.cast.eve, vela):
        report = await world.form_one(session=session, agent=agent)
        assert report.facts_added == 1
        assert world.contents(Scope.user(agent.id, world.cast.anna.id)) == [LISBON]
    own = make_message(session, "I am here.", role="assistant", sender=vela.id)
    world.store.host.add_messages(session.id, [own])
    for agent, name in ((world.cast.eve, "vela (other agent): I am"), (vela, "vela*: I am")):
        await world.form_one(session=session, agent=agent)
        assert name in world.llm.requests_for("facts")[-1].user


# -- whose memory --------------------------------------------------------------------------------


async def test_what_people_say_of_themselves_in_a_group_is_known_to_the_group_by_name(
    world: World,
) -> None:
    """Known failure 74: it was dropped."""
    session = world.cast.add_session(world.cast.anna, world.cast.bruno, group_id="harbour")
    said = [
        fact("Anna is allergic to nuts.", sources=[1]),
        fact("Bruno has two cats.", sources=[2]),
        fact("Anna has a twin.", sources=[1], private=True),  # told in confidence
        fact("Bruno owns a boat.", sources=[1]),  # not what he said of himself
        fact("Bruno is tall."),
    ]
    world.llm.script("facts", facts(*said))
    world.say("I am allergic to nuts, and I have a twin. Bruno owns a boat.", session=session)
    report = await world.learn("I have two cats.", sender=world.cast.bruno.id, session=session)
    group = Scope.group(world.cast.eve.id, "harbour")
    assert world.contents(group) == ["Anna is allergic to nuts.", "Bruno has two cats."]
    assert [each.rule for each in report.decisions if each.action == "REJECTED"] == ["scope"] * 3
    places = (world.cast.agent_scope, world.cast.anna_scope, world.cast.bruno_scope)
    assert world.contents(*places) == []


async def test_two_accounts_of_one_person_are_one_person(world: World) -> None:
    session = world.cast.add_session(world.cast.anna, world.cast.anna_on_discord)
    await world.learn(
        "I live in Lisbon.",
        facts=facts(LISBON),
        sender=world.cast.anna_on_discord.id,
        session=session,
    )
    assert world.contents(world.cast.discord_scope) == [LISBON]
    assert world.contents(world.cast.anna_scope) == []
    prompt = world.llm.requests_for("facts")[0].user
    assert "People who speak: anna." in prompt
    assert "anna#1234" not in prompt


@pytest.mark.parametrize(
    ("toggles", "scopes"),
    [
        ({"user_memory_enabled": False}, {"agent", "session"}),
        ({"agent_memory_enabled": False}, {"user", "session"}),
        ({"user_memory_enabled": False, "agent_memory_enabled": False}, {"session"}),
    ],
)
async def test_the_agents_toggles_are_obeyed(
    world: World, toggles: dict[str, bool], scopes: set[str]
) -> None:
    agent = world.cast.add_agent("vela", **toggles)
    session = world.add_session([agent], world.cast.anna)
    report = await world.learn(
        "I live in Lisbon.",
        facts=facts(LISBON, fact(WALK, "agent")),
        reflections=reflections(agent=["One."], user=["Two."], session=["Three."]),
        session=session,
        agent=agent,
    )
    assert set(report.reflections) == scopes
    assert report.facts_added == len(scopes) - 1
    if scopes == {"session"}:
        assert world.llm.tasks == ["reflections"]


async def test_a_paused_scope_takes_nothing_new(world: World) -> None:
    set_policy(world.store, world.cast.anna_scope, active=False)
    report = await world.learn(
        "I live in Lisbon.",
        facts=facts(LISBON),
        reflections=reflections(user=["One."], session=["Two."]),
    )
    assert (report.facts_added, report.reflections) == (0, {"session": 1})


async def test_shards_and_groups_take_what_is_theirs(world: World) -> None:
    festival = world.cast.add_shard("Festival", memory_instructions="Watch for budget lines.")
    closed = world.cast.add_shard("closed", memory_instructions="Old matters.", active=False)
    session = world.cast.add_session(world.cast.anna, group_id="lantern-crew")
    group = Scope.group(world.cast.eve.id, "lantern-crew")
    report = await world.learn(
        "We have 900 euros.",
        facts=facts(
            fact("The festival has 900 euros.", "shard", shard="festival"),
            fact("The old hall was sold.", "shard", shard="closed"),
            fact("The tide is high at 4.", "shard", shard="invented"),
            fact("The crew meets at the ferry hall.", "group"),
        ),
        reflections=reflections(
            shards={"Festival": ["Money is short."], "closed": ["The hall is cold."]}
        ),
        session=session,
    )
    assert world.contents(festival) == ["The festival has 900 euros."]
    assert world.pending(festival) == ["Money is short."]
    assert world.contents(group) == ["The crew meets at the ferry hall."]
    assert world.contents(closed) == world.pending(closed) == []
    assert [each.reason for each in report.decisions if each.action == "REJECTED"] == [
        "shard 'closed' takes no facts here",
        "shard 'invented' takes no facts here",
        "reflection: an unknown shard takes no reflections here",
    ]
    for request in world.llm.requests:
        assert "Watch for budget lines." in request.user
        assert "Old matters." not in request.user


async def test_where_there_is_one_shard_it_need_not_be_named(world: World) -> None:
    notes = world.cast.add_shard("notes")
    await world.learn("The walk is on 12 December.", facts=facts(fact(WALK, "shard")))
    assert world.contents(notes) == [WALK]


async def test_an_incognito_session_forms_nothing_and_keeps_its_messages(world: World) -> None:
    session = world.cast.add_session(world.cast.anna, incognito=True)
    report = await world.learn("Forget that I said this.", session=session)
    assert report.outcome == "incognito"
    assert world.llm.requests == []
    assert world.store.formations.backlog(session.id, world.cast.eve.id, limit=9).total == 1


async def test_better_models_go_with_the_owners_tier_and_the_scopes_policy(world: World) -> None:
    rich = make_user("rich", subscription_tier=1)
    assert world.store.host.add_user(rich)
    vela = world.cast.add_agent("vela", owner=rich.id)
    session = world.add_session([vela], world.cast.anna)
    llm = LLMSettings(fast_model="fast", slow_model="slow", premium_model="premium")

    async def models(agent: Any, session: Any) -> list[str]:
        world.say("I live in Lisbon.", session=session)
        await world.form(session=session, agent=agent, settings=Settings(llm=llm))
        return [request.model for request in world.llm.requests[-2:]]

    assert await models(world.cast.eve, world.cast.session) == ["fast", "slow"]
    assert await models(vela, session) == ["fast", "premium"]
    set_policy(world.store, Scope.agent(vela.id), fast_model="mine", slow_model="my-best")
    assert await models(vela, session) == ["mine", "my-best"]


# -- how much ------------------------------------------------------------------------------------


async def test_nothing_is_formed_before_the_threshold(world: World) -> None:
    report = await world.learn(*["Hm."] * 44, trigger=Trigger.THRESHOLD)
    assert (report.outcome, report.left) == ("not_due", 44)
    assert world.formations() == []
    assert world.llm.requests == []
    report = await world.learn("Hm.", trigger=Trigger.THRESHOLD)
    assert (report.outcome, report.messages) == ("applied", 45)


async def test_a_long_backlog_takes_several_ranges_and_leaves_out_nothing(world: World) -> None:
    """Known failure 20."""
    messages = world.say(*(f"Message {number}." for number in range(25)))
    reports = await world.form(max_messages=10)
    assert [report.messages for report in reports] == [10, 10, 5]
    assert [report.left for report in reports] == [15, 5, 0]
    done = [each for formation in reversed(world.formations()) for each in formation.message_ids]
    assert done == [message.id for message in messages]


async def test_a_range_ends_before_it_is_too_long_to_read(world: World) -> None:
    world.say("x" * 500, "y" * 500, "z" * 2000, "end")
    reports = await world.form(max_characters=1100, message_characters=5000)
    assert [report.messages for report in reports] == [2, 1, 1]


async def test_messages_that_nobody_reads_are_done_without_a_model(world: World) -> None:
    world.say("Tick.", "Tick.", trigger=True)
    report = await world.form_one()
    assert (report.outcome, report.messages) == ("applied", 2)
    assert world.llm.requests == []


async def test_messages_that_nobody_reads_do_not_hide_those_behind_them(world: World) -> None:
    world.say(*["Tick."] * 12, trigger=True)
    world.say(*["Hm."] * 5)
    reports = await world.form(
        trigger=Trigger.THRESHOLD, max_messages=10, message_interval=5, min_messages=1
    )
    assert [report.messages for report in reports] == [10, 7]


async def test_of_too_many_the_first_are_kept_and_the_rest_is_told(world: World) -> None:
    world.llm.script("facts", facts(*(f"House {number} is blue." for number in range(9))))
    world.say("Many houses are blue.")
    report = await world.form_one(facts_per_scope=4, dedup=False)  # a short talk: half of it
    assert world.contents(world.cast.anna_scope) == ["House 0 is blue.", "House 1 is blue."]
    rejected = [each for each in report.decisions if each.action == "REJECTED"]
    assert len(rejected) == 7
    assert rejected[0].reason == "too many facts for the user scope (at most 2)"


async def test_of_too_many_reflections_the_first_are_kept(world: World) -> None:
    thoughts = [f"Anna likes tile {number}." for number in range(6)]
    report = await world.learn(
        "I like tiles.",
        reflections=reflections(user=thoughts, session=["Anna asks."]),
        reflections_per_scope=4,
    )
    assert world.pending(world.cast.anna_scope) == thoughts[:2]
    assert report.reflections == {"user": 2, "session": 1}
    assert {each.reason for each in report.decisions} == {
        "reflection: too many reflections for the user scope (at most 2)"
    }


async def test_a_cold_run_leaves_no_tail_behind(world: World) -> None:
    world.say(*["Hm."] * 7)
    reports = await world.form(trigger=Trigger.COLD, max_messages=5)
    assert [report.messages for report in reports] == [5, 2]


async def test_nothing_that_a_model_writes_is_cut(world: World) -> None:
    """Known failure 102."""
    await world.learn(
        "Plenty of words.",
        facts=facts("word " * 400),
        reflections=reflections(user=["thought " * 500]),
    )
    assert world.contents(world.cast.anna_scope) == [" ".join(["word"] * 400)]
    assert world.pending(world.cast.anna_scope) == [" ".join(["thought"] * 500)]


async def test_a_scope_with_room_for_few_facts_lets_the_oldest_go(world: World) -> None:
    for day in range(4):
        add_fact(
            world.store,
            world.cast.anna_scope,
            f"Tile {day} is green.",
            formed_at=world.clock.advance(days=1),
        )
    set_policy(world.store, world.cast.anna_scope, fact_buffer_max=3)
    report = await world.learn("I live in Lisbon.", facts=facts(LISBON), dedup=False)
    assert report.facts_removed == 2
    assert world.contents(world.cast.anna_scope) == [
        LISBON,
        "Tile 2 is green.",
        "Tile 3 is green.",
    ]
    assert [entry.reason for entry in world.store.log.audit()].count("retention") == 2


@pytest.mark.parametrize("switch", ["pause", "toggle"])
async def test_what_is_switched_off_while_a_model_answers_takes_nothing(
    world: World, switch: str
) -> None:
    scope = world.cast.anna_scope

    def switched_off(request: Any) -> Any:
        if switch == "pause":
            set_policy(world.store, scope, active=False)
        else:
            off = SetAgentToggles(
                agent_id=world.cast.eve.id, at=world.clock(), user_memory_enabled=False
            )
            applied(world.store, off)
        return facts(LISBON, fact(WALK, "agent"))

    report = await world.learn(
        "I live in Lisbon.",
        "The walk is on 12 December.",
        facts=switched_off,
        reflections=reflections(user=["Anna may move."], session=["Anna spoke of Lisbon."]),
    )
    assert (report.outcome, report.facts_added) == ("applied", 1)
    assert world.contents(scope, world.cast.agent_scope) == [WALK]
    assert (world.pending(scope), world.pending(world.cast.session_scope)) == (
        [],
        ["Anna spoke of Lisbon."],
    )
    late = [each.content for each in report.decisions if "in the meantime" in each.reason]
    assert late == [LISBON, "Anna may move."]
    [request] = world.llm.requests_for("reflections")
    assert WALK in request.user
    assert LISBON not in request.user


async def test_a_limit_far_below_what_there_is_is_reached_step_by_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of a hundred thousand removals is refused by MongoDB: the range would be asked
    about again and again, and never be done."""
    monkeypatch.setattr("edenmem.engine.scopes.overview.MOST_REMOVALS", 3)
    for day in range(6):
        add_fact(
            world.store,
            world.cast.anna_scope,
            f"Tile {day} is green.",
            formed_at=world.clock.advance(days=1),
        )
    set_policy(world.store, world.cast.anna_scope, fact_buffer_max=2)
    world.llm.script("facts", [facts(LISBON), facts("Anna Duarte has a boat.")])
    left = []
    for content in ("I live in Lisbon.", "I have a boat."):
        report = await world.learn(content, dedup=False)
        left.append((report.facts_removed, world.contents(world.cast.anna_scope)))
    assert left == [
        (3, [LISBON, "Tile 3 is green.", "Tile 4 is green.", "Tile 5 is green."]),
        (3, ["Anna Duarte has a boat.", LISBON]),
    ]


async def test_what_is_replaced_makes_room_by_itself(world: World) -> None:
    cats = "Anna has two cats."
    for day, content in enumerate((cats, LISBON)):
        world.know(world.cast.anna_scope, content, formed_at=world.clock.advance(days=day))
    set_policy(world.store, world.cast.anna_scope, fact_buffer_max=2)
    moved = "Anna Duarte lives in Porto."
    await form_beside(world, moved, decision(1, "DELETE", 1))
    assert world.contents(world.cast.anna_scope) == [moved, cats]


async def test_retention_may_be_set_for_a_kind(world: World) -> None:
    add_fact(world.store, world.cast.anna_scope, "Tile 1 is green.")
    user = ScopeSettings(consolidate_at=4, word_limit=300, fact_buffer_max=1)
    await world.learn(
        "I live in Lisbon.",
        facts=facts(LISBON),
        dedup=False,
        settings=Settings(scopes=ScopesSettings(user=user)),
    )
    assert world.contents(world.cast.anna_scope) == [LISBON]


# -- comparing -----------------------------------------------------------------------------------


async def form_beside(world: World, new: dict[str, Any] | str, *answer: Any) -> FormationReport:
    """Form one fact while Anna lives in Lisbon already."""
    world.llm.script("facts", facts(new))
    world.llm.script("dedup", decisions(*answer))
    world.say("About where I live.")
    return await world.form_one()


async def test_a_merged_text_that_is_the_new_facts_own_is_embedded_once(world: World) -> None:
    world.know(world.cast.anna_scope, LISBON)
    new = "Anna Duarte lives in the Alfama in Lisbon."
    await form_beside(world, new, decision(1, "UPDATE", 1, new))
    assert world.contents(world.cast.anna_scope) == [new]
    assert world.embedder.calls == [(new,)]


async def test_if_the_old_fact_changed_meanwhile_the_new_one_is_added(world: World) -> None:
    old = world.know(world.cast.anna_scope, LISBON)
    corrected = "Anna Duarte lives in Sintra."

    def correct(request: object) -> dict[str, Any]:
        """While the model thinks, a person corrects the fact."""
        change = revision(old, corrected, scope=world.cast.anna_scope, at=world.clock())
        applied(world.store, change)
        return decisions(decision(1, "UPDATE", 1, "Merged from the old text."))

    new = "Anna Duarte lives in the Alfama."
    world.llm.script("facts", facts(new))
    world.llm.script("dedup", correct)
    report = await world.learn("I moved.", dedup_floor=0.0)
    assert (report.facts_added, report.facts_revised) == (1, 0)
    assert world.contents(world.cast.anna_scope) == sorted([corrected, new])


async def test_a_fact_that_is_known_in_other_words_is_skipped(world: World) -> None:
    world.know(world.cast.anna_scope, LISBON)
    report = await form_beside(world, "Anna Duarte is living in Lisbon.", decision(1, "NONE", 1))
    assert (report.facts_added, report.facts_skipped) == (0, 1)
    assert world.contents(world.cast.anna_scope) == [LISBON]


async def test_the_model_is_asked_about_near_facts_of_that_scope_alone(world: World) -> None:
    for scope in (world.cast.anna_scope, world.cast.bruno_scope, world.cast.agent_scope):
        world.know(scope, f"Anna Duarte lives in {scope.kind} {scope.owner[-3:]} Lisbon.")
    far = "Bruno sails."
    world.know(world.cast.anna_scope, far)
    await form_beside(world, LISBON, decision(1, "ADD"))
    [request] = world.llm.requests_for("dedup")
    assert "lives in user" in request.user
    assert "E2" not in request.user
    assert far not in request.user


async def test_the_same_words_are_known_without_asking(world: World) -> None:
    add_fact(world.store, world.cast.anna_scope, LISBON)
    report = await world.learn("I live in Lisbon.", facts=facts(LISBON, LISBON))
    assert (report.facts_added, report.facts_skipped) == (0, 1)
    assert world.embedder.calls == []


async def test_what_is_told_again_in_confidence_is_private_from_now_on(world: World) -> None:
    old = add_fact(world.store, world.cast.anna_scope, LISBON)
    await world.learn(
        "Keep it to yourself: I live in Lisbon.", facts=facts(fact(LISBON, private=True))
    )
    kept = some(world.store.memory.fact(old.id))
    assert kept.private


# -- reflections ---------------------------------------------------------------------------------


async def test_a_reflection_is_said_once_in_the_broadest_scope(world: World) -> None:
    add_reflection(world.store, world.cast.anna_scope, "Anna likes tiles.")
    consolidate(
        world.store, world.cast.agent_scope, "[NEWS]\n- The hall is sold.", expected_version=0
    )
    report = await world.learn(
        "The tide comes.",
        reflections=reflections(
            agent=["The hall is sold!", "The tide comes."],
            user=["anna likes tiles", "The tide comes."],
            session=["The tide comes.", "Anna asks for help."],
        ),
    )
    assert world.pending(world.cast.agent_scope) == ["The tide comes."]
    assert world.pending(world.cast.anna_scope) == ["Anna likes tiles."]
    assert world.pending(world.cast.session_scope) == ["Anna asks for help."]
    assert [each.reason for each in report.decisions] == ["reflection: already known"] * 4


async def test_privacy_is_kept_with_a_reflection(world: World) -> None:
    answer = reflections(user=["Anna is ill."])
    answer["user"][0]["private"] = True
    await world.learn("Between us: I am ill.", reflections=answer)
    [pending] = world.store.memory.pending(world.cast.anna_scope)
    assert pending.private
    assert pending.scope is ScopeKind.USER


# -- by hand -------------------------------------------------------------------------------------


async def test_a_dry_run_shows_everything_and_writes_nothing(world: World) -> None:
    world.say(*["I live in Lisbon."] * 12)
    world.llm.script("facts", facts(LISBON))
    world.llm.script("reflections", reflections(user=["Anna likes it short."]))
    before = state(world)
    report = await world.form_one(dry_run=True, max_messages=10)
    assert state(world) == before
    assert (report.outcome, report.messages, report.left) == ("dry_run", 10, 2)
    assert report.changes is not None
    assert [type(change).__name__ for change in report.changes.changes] == [
        "AddFact",
        "AddReflection",
    ]
    assert [each.action for each in report.decisions] == ["ADD"]


async def test_without_a_model_nothing_is_claimed(world: World) -> None:
    world.say("I live in Lisbon.")
    with pytest.raises(ConfigError, match="language model"):
        await world.form(llm=None)
    assert world.formations() == []


async def test_a_message_that_comes_late_is_formed_with_the_next_ones(world: World) -> None:
    await world.learn("First.", "Third.")
    late: Message = make_message(world.cast.session, "Second.", sender=world.cast.anna.id)
    world.store.host.add_messages(world.cast.session.id, [late])
    report = await world.form_one()
    assert report.messages == 1
    assert "Second." in world.llm.requests_for("facts")[-1].user
