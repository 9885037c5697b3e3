"""A session of a group: its memory and readers."""

from __future__ import annotations

from typing import Any

import pytest

from edenmem.errors import NotFoundError, ScopeError
from edenmem.models.host import Session
from edenmem.models.scope import Scope, ScopeKind
from tests.engine.formation.conftest import fact
from tests.engine.policies.conftest import Governed

FACT = "The guild meets in the old harbour on Mondays."
THOUGHT = "The guild wants decisions in writing."


@pytest.fixture
async def guild(governed_anywhere: Governed) -> tuple[Governed, Session]:
    """Form memories of a session of Anna and Bruno in the guild."""
    governed = governed_anywhere
    cast = governed.cast
    session = cast.add_session(cast.anna, cast.bruno, group_id="guild", name="guild-talk")
    governed.say("We meet on Mondays.", session=session)
    governed.say("In the old harbour.", session=session, sender=cast.bruno.id)
    governed.learn(fact(FACT, "group"), fact("Anna likes teal.", "user"), group=[THOUGHT])
    governed.llm.script("consolidate", {"text": "[WAYS]\n- in writing"})
    await governed.service().form_memories(session.id)
    return governed, session


def group(governed: Governed, name: str = "guild") -> Scope:
    return Scope.group(governed.cast.eve.id, name)


async def test_the_group_reads_it_in_its_sessions(guild: tuple[Governed, Session]) -> None:
    governed, session = guild
    service = governed.service()
    await service.consolidate(group(governed), force=True)
    later = governed.cast.add_session(governed.cast.bruno, group_id="guild")
    for each in (session, later):
        shown = await service.get_memory_context(each.id)
        inside = shown.split("<GroupMemory>")[1].split("</GroupMemory>")[0]
        assert "in writing" in inside
        assert FACT in shown


async def test_search_finds_it_with_the_group(guild: tuple[Governed, Session]) -> None:
    governed, session = guild
    service, eve = governed.service(), governed.cast.eve.id

    async def found(**named: Any) -> list[str]:
        report = await service.search(["harbour Mondays"], agent_id=eve, **named)
        return [hit.fact.content for hit in report.hits]

    assert await found(group_id="guild") == [FACT]
    assert await found(group_id="guild", kinds=[ScopeKind.GROUP]) == [FACT]
    assert await found() == []
    with pytest.raises(NotFoundError, match="choir"):
        await found(group_id="choir")
    assert await found(user_id=governed.cast.anna.id) == []
    with pytest.raises(ScopeError, match="group"):
        await found(kinds=[ScopeKind.GROUP])
    hits = (await service.search_facts(session.id, ["harbour Mondays"])).hits
    assert [hit.fact.content for hit in hits] == [FACT]
