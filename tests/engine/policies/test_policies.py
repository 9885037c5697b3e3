"""Each setting of a scope takes effect, from the edit to the prompt."""

from __future__ import annotations

import pytest

from edenmem.errors import UsageError
from edenmem.models.scope import Scope
from edenmem.settings.schema import ScopeSettings, ScopesSettings
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


# -- pause and resume ----------------------------------------------------------------------------


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
