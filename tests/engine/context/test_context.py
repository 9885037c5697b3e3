"""Contexts over a real store: their content, and when a cached one is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import msgspec
import pytest
from bson import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.context.builder import ContextBuilder
from edenmem.engine.context.recall import Recaller
from edenmem.engine.context.xml import EMPTY
from edenmem.engine.scopes.overview import scope_statuses
from edenmem.errors import UsageError
from edenmem.models.changes import SetAgentToggles
from edenmem.models.host import CachedContext
from edenmem.models.scope import Scope
from edenmem.settings.schema import ContextSettings, Settings
from tests.engine.conftest import make_cast
from tests.support.builders import NOW, FixedClock, ago, make_message, revision, some
from tests.support.memory import add_fact, add_reflection, applied, consolidate, set_policy
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from edenmem.engine.reports import ContextReport
    from edenmem.store.protocol.store import Store
    from tests.engine.conftest import Cast


def builder(cast: Cast, clock: FixedClock | None = None, **context: Any) -> ContextBuilder:
    configured = Settings(context=ContextSettings(**context))
    clock = clock or FixedClock()
    recaller = Recaller(make_runtime(cast.store, configured, clock=clock), searcher=None)
    return ContextBuilder(make_runtime(cast.store, configured, clock=clock), recaller=recaller)


async def build(cast: Cast, **options: Any) -> ContextReport:
    return await builder(cast).build(cast.session, cast.eve, **options)


def reflections_in(xml: str, element: str) -> list[str]:
    text = ElementTree.fromstring(xml).findtext(f"{element}/RecentReflections") or ""
    return [line.removeprefix("- ") for line in text.split("\n") if line.strip()]


async def test_all_parts_of_a_view(cast: Cast) -> None:
    shard = cast.add_shard("festival")
    group = Scope.group(cast.eve.id, "guild")
    cast.session = cast.add_session(cast.anna, group_id="guild")
    for scope, name in [
        (cast.agent_scope, "agent"),
        (shard, "shard"),
        (group, "group"),
        (cast.anna_scope, "user"),
        (cast.session_scope, "session"),
    ]:
        consolidate(cast.store, scope, f"Text of {name}.", expected_version=0)
        add_reflection(cast.store, scope, f"Reflection of {name}.", session_id=cast.session.id)
    add_fact(cast.store, cast.anna_scope, "Anna lives in Porto.", formed_at=ago(hours=2))
    report = await build(cast)
    root = ElementTree.fromstring(report.xml)
    assert [child.tag for child in root] == [
        "AgentMemory",
        "GroupMemory",
        "UserMemory",
        "SessionMemory",
        "Facts",
    ]
    assert root.findtext("AgentMemory/MemoryShard/Consolidated") == "VERSION: 1\nText of shard."
    assert root.findtext("UserMemory/Consolidated") == "VERSION: 1\nText of user."
    assert reflections_in(report.xml, "GroupMemory") == ["Reflection of group."]
    assert root.findtext("Facts") == "\n- [user] Anna lives in Porto. (2h ago)\n  "
    assert [part.name for part in report.parts] == [
        "AgentMemory",
        "MemoryShard festival",
        "GroupMemory",
        "UserMemory",
        "SessionMemory",
        "Facts",
    ]
    assert len(report.scopes) == 6  # both of Anna's accounts
    assert (report.cached, report.recall, report.built_at) == (False, "off", NOW)


async def test_an_empty_context_is_well_formed(cast: Cast) -> None:
    assert (await build(cast)).xml == EMPTY


async def test_known_failure_36_recent_reflections_are_the_newest(cast: Cast) -> None:
    """Known failure 36: "recent" reflections are the oldest twenty."""
    for number in range(30):
        add_reflection(
            cast.store,
            cast.agent_scope,
            f"Number {number}.",
            formed_at=ago(minutes=60 - number),
            session_id=cast.session.id,
        )
    for number in range(3):
        add_reflection(
            cast.store,
            cast.session_scope,
            f"Old {number}.",
            formed_at=ago(days=60 - number),
            session_id=cast.session.id,
        )
    xml = (await build(cast)).xml
    assert reflections_in(xml, "AgentMemory") == [f"Number {number}." for number in range(10, 30)]
    assert reflections_in(xml, "SessionMemory") == ["Old 0.", "Old 1.", "Old 2."]


@pytest.mark.parametrize("limit", [20, 4])
async def test_reflections_of_one_time_keep_buffer_order(cast: Cast, limit: int) -> None:
    for text in "edcba":
        add_reflection(cast.store, cast.session_scope, text, session_id=cast.session.id)
    contexts = builder(cast, reflections_limit=limit)
    xml = (await contexts.build(cast.session, cast.eve)).xml
    shown = reflections_in(xml, "SessionMemory")
    assert shown == [text for text in "edcba" if text in shown]
    assert len(shown) == min(limit, 5)


async def test_known_failure_38_an_old_fact_corrected_today_is_recent(cast: Cast) -> None:
    """Known failure 38: recent facts go by the time formed: an old one corrected stays out."""
    old = add_fact(cast.store, cast.agent_scope, "Gate A is open.", formed_at=ago(days=60))
    add_fact(cast.store, cast.agent_scope, "Gate C is red.", formed_at=ago(days=8))
    add_fact(cast.store, cast.agent_scope, "Gate D is new.", formed_at=ago(days=2))
    assert "Gate A" not in (await build(cast)).xml
    applied(cast.store, revision(old, "Gate B is open.", scope=cast.agent_scope, at=ago(minutes=3)))
    xml = (await build(cast)).xml
    assert ElementTree.fromstring(xml).findtext("Facts") == (
        "\n- [agent] Gate B is open. (3m ago)\n- [agent] Gate D is new. (2d ago)\n  "
    )


async def test_doubt_is_shown_and_crowds_out_nothing(cast: Cast) -> None:
    """Known failure 105: what is in doubt looked like the rest."""
    for number in range(3):
        text, doubt = f"Doubted {number}.", "has no quote"
        at = ago(minutes=number)
        add_fact(cast.store, cast.agent_scope, text, formed_at=at, unconfirmed=doubt)
    for number in range(3):
        add_fact(cast.store, cast.agent_scope, f"Sure {number}.", formed_at=ago(hours=1 + number))
    add_reflection(cast.store, cast.anna_scope, "Anna may move.", unconfirmed="leaves out 'if'")
    add_reflection(cast.store, cast.anna_scope, "Anna rows.")

    async def lines(limit: int, **options: Any) -> list[str]:
        report = await builder(cast, facts_limit=limit).build(cast.session, cast.eve, **options)
        facts = ElementTree.fromstring(report.xml).findtext("Facts") or ""
        return [line.strip() for line in facts.splitlines() if line.strip()]

    sure = [f"- [agent] Sure {number}. ({number + 1}h ago)" for number in range(3)]
    assert await lines(3) == sure
    assert await lines(2) == sure[:2]
    assert await lines(4) == [*sure, "- [agent] Doubted 0. (unconfirmed) (now)"]
    assert len(await lines(9)) == 6
    xml = (await build(cast)).xml
    assert "- Anna may move. (unconfirmed)\n" in xml
    assert "- Anna rows.\n" in xml


async def test_facts_are_limited_in_number_and_age(cast: Cast) -> None:
    for number in range(6):
        add_fact(cast.store, cast.agent_scope, f"Fact {number}.", formed_at=ago(hours=number))
    xml = (await builder(cast, facts_limit=3).build(cast.session, cast.eve)).xml
    assert [f"Fact {number}." in xml for number in range(6)] == [True] * 3 + [False] * 3
    xml = (await builder(cast, facts_max_age_hours=1).build(cast.session, cast.eve)).xml
    assert [f"Fact {number}." in xml for number in range(6)] == [True] * 2 + [False] * 4
    none = await builder(cast, facts_limit=0, reflections_limit=0).build(cast.session, cast.eve)
    assert none.xml == EMPTY


# -- the cache -----------------------------------------------------------------------------------


async def test_a_context_is_cached_for_five_minutes(cast: Cast) -> None:
    clock = FixedClock()
    contexts = builder(cast, clock)
    consolidate(cast.store, cast.anna_scope, "Anna is brief.", expected_version=0)
    first = await contexts.build(cast.session, cast.eve)
    clock.advance(minutes=4, seconds=59)
    second = await contexts.build(cast.session, cast.eve)
    assert (first.cached, second.cached) == (False, True)
    assert (second.xml, second.built_at, second.parts) == (first.xml, NOW, first.parts)
    clock.advance(seconds=1)
    assert not (await contexts.build(cast.session, cast.eve)).cached
    assert (await contexts.build(cast.session, cast.eve)).cached
    assert not (await contexts.build(cast.session, cast.eve, force_refresh=True)).cached
    clock.advance(hours=-1)  # another host's clock
    assert not (await contexts.build(cast.session, cast.eve)).cached


async def test_known_failure_7_a_second_person_is_noticed_before_the_cache(cast: Cast) -> None:
    """Known failure 7: after a second user joins, the first one's memory is shown for minutes."""
    consolidate(cast.store, cast.anna_scope, "Anna's secret.", expected_version=0)
    add_fact(cast.store, cast.anna_scope, "Anna's secret fact.", formed_at=ago(minutes=1))
    assert "secret" in (await build(cast)).xml
    joining = msgspec.structs.replace(cast.session, users=(cast.anna.id, cast.bruno.id))
    assert not cast.store.host.put_session(joining)
    joined = some(cast.store.host.session(cast.session.id))
    cast.session = joined
    report = await build(cast)
    assert "secret" not in report.xml
    assert not report.cached


async def test_known_failure_7_so_is_one_who_only_writes(cast: Cast) -> None:
    """Known failure 7, with a person whom the session's list does not have."""
    consolidate(cast.store, cast.anna_scope, "Anna's secret.", expected_version=0)
    assert "secret" in (await build(cast)).xml
    assert "secret" not in (await build(cast, speaker=cast.bruno.id)).xml
    assert "secret" in (await build(cast, speaker=cast.anna_on_discord.id)).xml
    cast.store.host.add_messages(
        cast.session.id, [make_message(cast.session, sender=cast.bruno.id)]
    )
    assert "secret" not in (await build(cast)).xml


async def test_known_failure_59_a_context_for_a_guest_is_not_kept(cast: Cast) -> None:
    """Known failure 59: a look with another user fills the cache of the session."""
    consolidate(cast.store, cast.anna_scope, "Anna's secret.", expected_version=0)
    await build(cast, keep=False)
    await build(cast, speaker=cast.bruno.id)
    assert cast.store.contexts.find_context(cast.session.id, cast.eve.id) is None
    await build(cast, speaker=cast.anna.id)
    kept = some(cast.store.contexts.find_context(cast.session.id, cast.eve.id))
    assert "Anna's secret." in kept.xml
    await build(cast, speaker=cast.bruno.id, force_refresh=True)
    assert cast.store.contexts.find_context(cast.session.id, cast.eve.id) == kept


async def test_changes_in_any_scope_make_the_cached_context_stale(cast: Cast) -> None:
    async def is_cached() -> bool:
        agent = some(cast.store.host.agent(cast.eve.id))
        return (await builder(cast).build(cast.session, agent)).cached

    await build(cast)
    assert await is_cached()
    add_fact(cast.store, cast.anna_scope)
    assert not await is_cached()
    add_reflection(cast.store, cast.session_scope, session_id=cast.session.id)
    assert not await is_cached()
    consolidate(cast.store, cast.agent_scope, "A text.", expected_version=0)
    assert not await is_cached()
    cast.add_shard("festival")
    assert not await is_cached()
    assert await is_cached()
    add_fact(cast.store, cast.bruno_scope)  # not in this context
    assert await is_cached()
    applied(cast.store, SetAgentToggles(agent_id=cast.eve.id, at=NOW, user_memory_enabled=False))
    assert not await is_cached()


async def test_other_settings_or_a_foreign_text_make_the_cached_context_stale(cast: Cast) -> None:
    add_fact(cast.store, cast.agent_scope, formed_at=ago(minutes=1))
    first = await build(cast)
    assert not (await builder(cast, facts_limit=3).build(cast.session, cast.eve)).cached
    await build(cast)
    ours = some(cast.store.contexts.find_context(cast.session.id, cast.eve.id))
    foreign = CachedContext(
        xml="<MemoryContext>by another program", fingerprint=ours.fingerprint, built_at=NOW
    )
    cast.store.contexts.cache_context(cast.session.id, cast.eve.id, foreign)
    again = await build(cast)
    assert (again.cached, again.xml) == (False, first.xml)


async def test_two_agents_of_a_session_have_separate_contexts(cast: Cast) -> None:
    adam = cast.add_agent("adam")
    consolidate(cast.store, cast.agent_scope, "What Eve knows.", expected_version=0)
    consolidate(cast.store, Scope.agent(adam.id), "What Adam knows.", expected_version=0)
    contexts = builder(cast)
    for _ in range(2):
        assert "What Eve knows." in (await contexts.build(cast.session, cast.eve)).xml
        assert "What Adam knows." in (await contexts.build(cast.session, adam)).xml


# -- the past ------------------------------------------------------------------------------------


async def test_as_of_rebuilds_a_past_context(cast: Cast) -> None:
    consolidate(cast.store, cast.anna_scope, "Early.", expected_version=0, at=ago(days=9))
    reflection = add_reflection(
        cast.store,
        cast.anna_scope,
        "Was pending.",
        formed_at=ago(days=5),
        session_id=cast.session.id,
    )
    add_fact(cast.store, cast.agent_scope, "A fact of then.", formed_at=ago(days=8))
    consolidate(
        cast.store,
        cast.anna_scope,
        "Late.",
        expected_version=1,
        absorbed_ids=[reflection.id],
        at=ago(days=1),
    )
    add_fact(cast.store, cast.agent_scope, "A fact of now.", formed_at=ago(hours=1))

    report = await build(cast, as_of=ago(days=3))
    root = ElementTree.fromstring(report.xml)
    assert root.findtext("UserMemory/Consolidated") == "VERSION: 1\nEarly."
    assert reflections_in(report.xml, "UserMemory") == ["Was pending."]
    assert root.findtext("Facts") == "\n- [agent] A fact of then. (5d ago)\n  "
    assert report.built_at == ago(days=3)
    assert (await build(cast, as_of=ago(days=30))).xml == EMPTY
    assert cast.store.contexts.find_context(cast.session.id, cast.eve.id) is None
    now = await build(cast)
    assert "Late." in now.xml
    assert "Was pending." not in now.xml


async def test_known_failure_39_a_moment_without_a_zone_is_utc(cast: Cast) -> None:
    """Known failure 39: times with and without zone are mixed."""
    add_fact(cast.store, cast.agent_scope, "A fact.", formed_at=ago(hours=1))
    naive = ago(minutes=30).replace(tzinfo=None)
    assert "A fact. (30m ago)" in (await build(cast, as_of=naive)).xml
    assert (await build(cast, as_of=ago(hours=2).replace(tzinfo=None))).xml == EMPTY


async def test_the_past_has_no_recall(cast: Cast) -> None:
    with pytest.raises(UsageError, match="recall is not available"):
        await build(cast, as_of=NOW, recall="always")


# -- any state of the store ----------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25)
@given(data=st.data())
async def test_no_context_ever_holds_a_text_of_a_scope_outside_its_view(
    open_store: Callable[[str], Store], data: st.DataObject
) -> None:
    """For any session, with scopes of two agents, three users, two groups, shards and sessions."""
    cast = make_cast(open_store("sqlite"))
    adam = cast.add_agent("adam")
    people = [cast.anna, cast.anna_on_discord, cast.bruno]
    users = data.draw(st.lists(st.sampled_from(people), max_size=3, unique=True))
    cast.session = cast.add_session(
        *users, group_id=data.draw(st.sampled_from([None, "guild", "crew"]))
    )
    scopes = [
        scope
        for agent in (cast.eve, adam)
        for scope in (
            Scope.agent(agent.id),
            Scope.shard(agent.id, "on"),
            Scope.shard(agent.id, "off"),
            Scope.group(agent.id, "guild"),
            Scope.group(agent.id, "crew"),
            Scope.user(agent.id, cast.anna.id),
            Scope.user(agent.id, cast.anna_on_discord.id),
            Scope.user(agent.id, cast.bruno.id),
            Scope.session(agent.id, cast.session.id),
            Scope.session(agent.id, "f" * 24),
        )
    ]
    for agent in (cast.eve, adam):
        set_policy(cast.store, Scope.shard(agent.id, "on"))
        set_policy(cast.store, Scope.shard(agent.id, "off"), active=False)
    marks = {scope: f"mark{number}x" for number, scope in enumerate(scopes)}
    for scope, mark in marks.items():
        consolidate(cast.store, scope, f"text {mark}", expected_version=0)
        source = scope.session_id or cast.session.id
        add_reflection(cast.store, scope, f"reflection {mark}", session_id=source)
        if scope.session_id is None:
            add_fact(cast.store, scope, f"fact {mark}")

    persons = {user.person_id for user in users}
    allowed = {
        Scope.agent(cast.eve.id),
        Scope.shard(cast.eve.id, "on"),
        Scope.session(cast.eve.id, cast.session.id),
    }
    if cast.session.group_id:
        allowed.add(Scope.group(cast.eve.id, cast.session.group_id))
    if len(persons) == 1:
        owners = [user.id for user in people if user.person_id in persons]
        allowed |= {Scope.user(cast.eve.id, owner) for owner in owners}
    for options in ({}, {}, {"as_of": NOW}):
        xml = (await build(cast, **options)).xml
        assert {scope for scope, mark in marks.items() if mark in xml} == allowed


@pytest.mark.slow
@pytest.mark.parametrize(
    "odd",
    [
        *({}, {"scope": "weird"}, {"scope": "user"}, {"scope": "user", "agent_id": None}),
        {"scope": "agent", "agent_id": "x", "content": 5},
        {"scope": "session", "agent_id": ObjectId(), "session_id": None},
        {"content": "of no scope", "absorbed": False},
    ],
)
async def test_odd_entries_of_a_platforms_buffer_hide_nothing(
    open_store: Callable[[str], Store], odd: dict[str, Any]
) -> None:
    cast = make_cast(open_store("secantus"))
    good = add_reflection(cast.store, cast.agent_scope, "Good.", session_id=cast.session.id)
    database = cast.store.connection.database  # type: ignore[attr-defined]
    document = {"_id": ObjectId(), **odd}
    database.memory2_reflections.insert_one(document)
    entries = [document["_id"], "zz", None, 7, good.id, *(ObjectId() for _ in range(30))]
    database.memory2_consolidated.update_one(
        {"scope": "agent"}, {"$push": {"unabsorbed_ids": {"$each": entries}}}
    )
    report = await build(cast)
    assert reflections_in(report.xml, "AgentMemory") == ["Good."]
    statuses = scope_statuses(cast.store, Settings(), details=True)
    assert cast.agent_scope in [status.scope for status in statuses]
