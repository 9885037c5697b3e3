"""Each setting of a scope takes effect, from the edit to the prompt."""

from __future__ import annotations

import pytest

from edenmem.errors import UsageError
from edenmem.models.scope import Scope
from edenmem.settings.schema import LLMSettings, ScopeSettings, ScopesSettings
from tests.engine.formation.conftest import fact
from tests.engine.policies.conftest import Governed
from tests.support.memory import add_reflection


async def test_memory_instructions_reach_extraction_of_facts_and_reflections(
    governed: Governed,
) -> None:
    lore = Scope.shard(governed.cast.eve.id, "lore")
    await governed.set(lore, memory_instructions="Only what is about bells.")
    await governed.set(governed.cast.anna_scope, memory_instructions="Never about food.")
    governed.say("I cast bells.")
    await governed.form()
    for task in ("facts", "reflections"):
        [request] = governed.llm.requests_for(task)
        assert "Only what is about bells." in request.user
        assert "Never about food." in request.user
    # Instructions are fenced like any other text: their author may be untrusted.
    assert "<<<instructions " in governed.llm.requests_for("facts")[0].user


async def test_consolidation_instructions_reach_only_consolidation(governed: Governed) -> None:
    await governed.set(
        governed.cast.anna_scope,
        consolidation_instructions="Bullets, please.",
        memory_instructions="Only colours.",
    )
    governed.say("I like teal.")
    governed.learn(user=["Anna likes teal."])
    governed.llm.script("consolidate", {"text": "- teal"})
    await governed.service().form_memories(governed.cast.session.id)
    await governed.service().consolidate(governed.cast.anna_scope, force=True)
    [request] = governed.llm.requests_for("consolidate")
    assert "Bullets, please." in request.user
    assert "Only colours." not in request.user
    assert "Bullets, please." not in governed.llm.requests_for("facts")[0].user


async def test_threshold_and_word_limit_apply(governed: Governed) -> None:
    await governed.set(governed.cast.anna_scope, consolidate_at=2, word_limit=3)
    service = governed.service()
    governed.llm.script("consolidate", {"text": "Four words are much."})
    governed.llm.script("shorten", {"text": "Three words only."})
    governed.say("one")
    governed.learn(user=["Anna counts bells."])
    [first] = await service.form_memories(governed.cast.session.id)
    assert first.consolidations == ()
    governed.say("two")
    governed.learn(user=["Anna counts towers."])
    [second] = await service.form_memories(governed.cast.session.id)
    [written] = second.consolidations
    assert (written.outcome, written.absorbed, written.after) == (
        "written",
        2,
        "Three words only.",
    )
    document = governed.store.memory.consolidations((governed.cast.anna_scope,))
    assert document[governed.cast.anna_scope].word_limit == 3


async def test_facts_beyond_the_limit_are_removed_and_can_be_restored(
    governed_anywhere: Governed,
) -> None:
    governed = governed_anywhere
    scope = governed.cast.anna_scope
    await governed.set(scope, fact_buffer_max=2)
    for number in range(4):
        governed.say(f"message {number}")
        governed.learn(f"Anna keeps bell number {number} in the tower.")
        await governed.service().form_memories(governed.cast.session.id)
    assert governed.contents(scope) == [
        f"Anna keeps bell number {number} in the tower." for number in (2, 3)
    ]
    removed = [e for e in governed.store.log.audit() if e.action == "remove_fact"]
    assert [entry.reason for entry in removed] == ["retention", "retention"]
    oldest = removed[-1]
    history = governed.store.history.versions("fact", oldest.target_id)
    assert history[-1].action == "delete"
    assert history[-1].snapshot is not None
    assert history[-1].snapshot.content == "Anna keeps bell number 0 in the tower."

    await governed.editor().restore_fact(oldest.target_id)
    back = governed.store.memory.fact(oldest.target_id, with_vector=True)
    assert back is not None
    assert back.content == "Anna keeps bell number 0 in the tower."
    assert back.embedding == governed.embedder.vector(back.content)


async def test_retention_applies_to_added_facts(governed_anywhere: Governed) -> None:
    governed = governed_anywhere
    scope = governed.cast.anna_scope
    await governed.set(scope, fact_buffer_max=2)
    for number in range(3):
        governed.say("nothing")  # time passes
        report = await governed.editor().add_fact(scope, f"Bell number {number} is cracked.")
    assert report.notices[-1] == "the scope is limited to 2 facts; removed the oldest (1)"
    assert governed.contents(scope) == [f"Bell number {n} is cracked." for n in (1, 2)]
    preview = await governed.editor().add_fact(scope, "Bell number 3 is new.", dry_run=True)
    assert "would remove the oldest (1)" in preview.notices[-1]
    again = await governed.editor().add_fact(scope, "Bell number 2 is cracked.")
    assert again.action == "none"
    assert len(governed.contents(scope)) == 2


async def test_retention_applies_to_one_scope(governed: Governed) -> None:
    """A limit for one user removes no facts of other users or the agent."""
    cast = governed.cast
    await governed.set(cast.anna_scope, fact_buffer_max=1)
    governed.say("first")
    governed.learn(
        "Anna keeps a bell.", fact("The hall has 350 seats.", "agent"), fact("A hall.", "agent")
    )
    await governed.form(dedup=False)
    bruno = cast.add_session(cast.bruno)
    governed.say("mine", session=bruno, sender=cast.bruno.id)
    governed.learn("Bruno keeps a drum.", "Bruno keeps a flute.")
    await governed.form(session=bruno, dedup=False)
    governed.say("second")
    governed.learn("Anna keeps another bell.")
    await governed.form(dedup=False)
    assert governed.contents(cast.anna_scope) == ["Anna keeps another bell."]
    assert len(governed.contents(cast.bruno_scope)) == 2
    assert len(governed.contents(cast.agent_scope)) == 2


async def test_models_of_a_policy_override_the_settings(governed: Governed) -> None:
    llm = LLMSettings(fast_model="fast", slow_model="slow")
    service = governed.service(llm=llm)
    governed.say("one")
    governed.llm.script("consolidate", {"text": "A text."})
    governed.learn(user=["Anna counts bells."])
    await service.form_memories(governed.cast.session.id)
    await governed.set(governed.cast.anna_scope, fast_model="quick", slow_model="thorough")
    governed.say("two")
    await service.form_memories(governed.cast.session.id)
    await service.consolidate(governed.cast.anna_scope, force=True)
    assert [(r.task, r.model) for r in governed.llm.requests] == [
        ("facts", "fast"),
        ("reflections", "slow"),
        ("facts", "quick"),
        ("reflections", "thorough"),
        ("consolidate", "thorough"),
    ]


# -- pause and resume ----------------------------------------------------------------------------


async def test_a_paused_scope_keeps_its_memory_and_accepts_nothing_new(
    governed_anywhere: Governed,
) -> None:
    governed = governed_anywhere
    scope, editor = governed.cast.anna_scope, governed.editor()
    service = governed.service()
    governed.say("I keep a bell.")
    governed.learn("Anna keeps a bell.", user=["Anna likes teal."])
    await service.form_memories(governed.cast.session.id)

    await editor.pause(scope)
    governed.say("I keep a drum.")
    governed.learn("Anna keeps a drum.", user=["Anna likes red."], session=["A drum."])
    await service.form_memories(governed.cast.session.id)
    assert governed.contents(scope) == ["Anna keeps a bell."]
    assert governed.pending(scope) == ["Anna likes teal."]
    assert governed.pending(governed.cast.session_scope) == ["A drum."]
    assert (await service.consolidate(scope)).outcome == "paused"
    shown = await service.get_memory_context(governed.cast.session.id)
    assert "Anna likes teal." in shown  # still readable
    assert "Anna keeps a bell." in shown
    found = await service.search(
        ["bell"], agent_id=governed.cast.eve.id, user_id=governed.cast.anna.id
    )
    assert [hit.fact.content for hit in found.hits] == ["Anna keeps a bell."]

    await editor.resume(scope)
    governed.say("I keep a flute.")
    governed.learn("Anna keeps a flute.", user=["Anna likes blue."])
    await service.form_memories(governed.cast.session.id)
    assert governed.contents(scope) == ["Anna keeps a bell.", "Anna keeps a flute."]
    assert governed.pending(scope) == ["Anna likes teal.", "Anna likes blue."]


async def test_a_paused_shard_leaves_the_context_and_returns(
    governed_anywhere: Governed,
) -> None:
    governed = governed_anywhere
    lore = Scope.shard(governed.cast.eve.id, "lore")
    await governed.set(lore, memory_instructions="Bells.")
    add_reflection(governed.store, lore, "The great bell is cracked.")
    service, session = governed.service(), governed.cast.session.id
    assert "The great bell is cracked." in await service.get_memory_context(session)
    await governed.editor().pause(lore)
    assert "cracked" not in await service.get_memory_context(session)
    governed.say("The small bell is cracked too.")
    await service.form_memories(session)
    assert "Bells." not in governed.llm.requests_for("facts")[0].user
    await governed.editor().resume(lore)
    assert "The great bell is cracked." in await service.get_memory_context(session)


@pytest.mark.parametrize("own", [None, 7])
async def test_unset_fields_have_the_defaults_of_the_kind(
    governed: Governed, own: int | None
) -> None:
    await governed.set(governed.cast.anna_scope, word_limit=own, consolidate_at=1)
    user = ScopeSettings(consolidate_at=9, word_limit=123)
    service = governed.service(scopes=ScopesSettings(user=user))
    governed.llm.script("consolidate", {"text": "A text."})
    add_reflection(governed.store, governed.cast.anna_scope, "Anna likes teal.")
    report = await service.consolidate(governed.cast.anna_scope)
    assert (report.outcome, report.word_limit) == ("written", own or 123)


async def test_only_shards_accept_orders(governed: Governed) -> None:
    with pytest.raises(UsageError, match="only shards"):
        await governed.set(governed.cast.anna_scope, orders=True)
    shard = Scope.shard(governed.cast.eve.id, "rules")
    await governed.set(shard, orders=True)
    assert governed.store.memory.policies([shard])[shard].orders is True
    await governed.set(shard, orders=None)
    assert governed.store.memory.policies([shard])[shard].orders is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("word_limit", "x", "word_limit must be a whole number: 'x'"),
        ("word_limit", "0", "word_limit must be a whole number of at least 1: '0'"),
        ("propagate", "perhaps", "propagate must be true or false: 'perhaps'"),
    ],
)
async def test_an_invalid_value_is_named_in_plain_words(
    governed: Governed, field: str, value: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        await governed.set(governed.cast.anna_scope, **{field: value})
    assert caught.value.message == words
