"""Input of host programs: names, keys, messages as dicts, and mistakes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from edenmem.engine.service import MemoryService
from edenmem.errors import ConflictError, EdenmemError, InputError, NotFoundError, UsageError
from edenmem.models.host import Message
from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    FixedClock,
    make_agent,
    make_fact,
    make_message,
    make_session,
    make_user,
)
from tests.support.memory import add_facts

MIRA = make_agent("mira")
LENA, TOMAS = make_user("lena"), make_user("tomas")
TALK = make_session([MIRA], [LENA], name="talk", id=derived_id("session", "talk"))
TEA = make_fact(Scope.user(MIRA.id, LENA.id), "Lena drinks green tea.")
UNKNOWN = "0" * 24


@pytest.fixture
def service(store: Store, clock: FixedClock) -> MemoryService:
    for agent in (MIRA, make_agent("adam")):
        store.host.add_agent(agent)
    for user in (LENA, TOMAS):
        store.host.add_user(user)
    store.host.put_session(TALK)
    add_facts(store, TEA)
    return MemoryService(store, Settings(), clock=clock)


sqlite_only = pytest.mark.parametrize("store", ["sqlite"], indirect=True)


# -- names ---------------------------------------------------------------------------------------


@sqlite_only
async def test_a_name_works_like_its_id(service: MemoryService) -> None:
    for agent, user, session in (("mira", "lena", "talk"), (MIRA.id, LENA.id, TALK.id)):
        found = await service.search("tea", agent_id=agent, user_id=user)
        assert [hit.fact.id for hit in found.hits] == [TEA.id]
        assert found.queries == ("tea",)
        in_talk = await service.search_facts(session, ["tea"], agent_id=agent, user_id=user)
        assert len(in_talk.hits) == 1
        context = await service.get_memory_context(session, agent_id=agent, user_id=user)
        assert "green tea" in context
        assert await service.form_memories(session, agent_id=agent) is not None
        memory = await service.memory_for(agent, user=user, session=session)
        assert (memory.agent_id, memory.user_id, memory.session_id) == (MIRA.id, LENA.id, TALK.id)


Call = Callable[[Any], Coroutine[Any, Any, object]]
HELLO = {"role": "user", "name": "nobody", "content": "hi"}

WRONG: dict[type[EdenmemError], list[tuple[Call, str]]] = {
    NotFoundError: [
        (lambda s: s.search("tea", agent_id="nobody"), "agent not found: 'nobody'"),
        (lambda s: s.search("tea", agent_id="mira", user_id="nobody"), "user not found: 'nobody'"),
        (lambda s: s.search("tea", agent_id="mira", user_id=UNKNOWN), "user not found"),
        (lambda s: s.search("tea", agent_id="mira", group_id="nobody"), "group 'nobody'"),
        (lambda s: s.get_memory_context("nowhere"), "session not found: 'nowhere'"),
        (lambda s: s.get_memory_context("talk", user_id="nobody"), "user not found: 'nobody'"),
        (lambda s: s.remember("T.", agent_id="mira", user_id="nobody"), "user not found: 'nobody'"),
        (lambda s: s.add_messages("talk", [HELLO]), "user not found: 'nobody'"),
        (lambda s: s.add_messages(UNKNOWN, []), "session not found"),
        (lambda s: s.maybe_form_memories(UNKNOWN), "session not found"),
        (lambda s: s.on_session_end(UNKNOWN), "session not found"),
        (lambda s: s.process_cold_session(UNKNOWN), "session not found"),
        (lambda s: s.search_facts(UNKNOWN, ["x"]), "session not found"),
        (lambda s: s.get_memory_context("talk", agent_id="adam"), "adam"),
    ],
    UsageError: [
        (lambda s: s.search("tea", agent_id=""), "agent must be a name or an ID"),
        (lambda s: s.search("tea", agent_id=MIRA), "agent must be a name or an ID"),
        (lambda s: s.search([7], agent_id="mira"), "a query must be text"),
        (lambda s: s.search([], agent_id="mira"), "query is missing"),
        (lambda s: s.search("tea", agent_id="mira", top_k="5"), "top_k is not a whole number"),
        (
            lambda s: s.search("tea", agent_id="mira", within="notes"),
            "within is not one of facts, reflections, texts",
        ),
        (
            lambda s: s.search("tea", agent_id="mira", kinds="users"),
            "kinds is not one of agent, shard",
        ),
        (lambda s: s.search("tea", agent_id="mira", since="7d"), "since is not a datetime"),
        (lambda s: s.remember(None, agent_id="mira"), "the text to remember is empty"),
        (lambda s: s.add_messages("talk", "hello"), "messages must be a list: str"),
        (lambda s: s.add_messages("talk", {"role": "user"}), "messages must be a list: dict"),
        (
            lambda s: s.add_messages("talk", ["hello"]),
            "messages[0] must be a Message or a dict: str",
        ),
        (lambda s: s.add_messages("talk", [make_message(UNKNOWN)]), "belongs to another session"),
        (lambda s: s.ensure_session("chat", agents=["mira"], users="lena"), "must be lists"),
        (lambda s: s.ensure_session("chat", agents=[]), "needs an agent"),
        (lambda s: s.ensure_user("  "), "must have 1 to"),
        (lambda s: s.ensure_user(42), "must be a text: int"),
    ],
    InputError: [
        (lambda s: s.add_messages("talk", [{"content": "hello"}]), "messages[0].role is missing"),
        (
            lambda s: s.add_messages("talk", [{"role": "robot", "content": "hello"}]),
            "messages[0].role must be one of",
        ),
    ],
}


@sqlite_only
@pytest.mark.parametrize("kind", WRONG)
async def test_a_mistake_is_an_error_and_never_an_empty_result(
    service: MemoryService, kind: type[EdenmemError]
) -> None:
    for call, said in WRONG[kind]:
        with pytest.raises(kind) as caught:
            await call(service)
        assert said in caught.value.message


# -- messages ------------------------------------------------------------------------------------


async def test_a_sender_by_name_is_the_sessions_user(service: MemoryService, store: Store) -> None:
    """As an unknown user, the name would make a group chat, without user memory."""
    message = make_message(TALK, "Good morning.", sender="lena")
    assert await service.add_messages("talk", [message]) == 1
    assert [stored.sender for stored in store.host.messages(TALK.id)] == [LENA.id]
    assert "green tea" in await service.get_memory_context("talk", force_refresh=True)


async def test_messages_of_a_chat_api_are_stored_in_order(
    service: MemoryService, store: Store
) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "find", "arguments": '{"a": 1}'},
    }
    turn: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where is it?"}], "id": "m-1"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "here", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "Here.", "created_at": "2026-03-14T13:00:00Z"},
        {"role": "user", "content": "Ok", "created_at": datetime(2026, 3, 14, 14, tzinfo=UTC)},
    ]
    assert await service.add_messages("talk", turn) == 6
    assert await service.add_messages("talk", turn[1:2]) == 0
    stored = list(store.host.messages(TALK.id))
    assert [(m.role, m.content) for m in stored] == [
        ("system", "Be brief."),
        ("user", "Where is it?"),
        ("assistant", ""),
        ("tool", "here"),
        ("assistant", "Here."),
        ("user", "Ok"),
    ]
    assert [m.sender for m in stored] == [None, LENA.id, MIRA.id, None, MIRA.id, LENA.id]
    assert stored[2].tool_calls[0].args == {"a": 1}


@sqlite_only
async def test_in_a_group_a_message_must_have_an_author(
    service: MemoryService, store: Store
) -> None:
    group = await service.ensure_session("group", agents=["mira"], users=["lena", "tomas"])
    hello = {"role": "user", "content": "Hello."}
    with pytest.raises(UsageError, match="ambiguous sender"):
        await service.add_messages("group", [hello])
    await service.add_messages("group", [hello], user="tomas")
    await service.add_messages("group", [{**hello, "name": "lena"}])
    senders = [message.sender for message in store.host.messages(group.id)]
    assert senders == [TOMAS.id, LENA.id]


# -- the host's own keys ---------------------------------------------------------------------------


async def test_objects_of_a_host_are_created_once(service: MemoryService, store: Store) -> None:
    first = await service.ensure_session("chat-42", agents=["otto"], users=["user-8731"])
    again = await service.ensure_session("chat-42", agents=["otto"], users=["user-8731"])
    assert first == again
    assert first.id == derived_id("session", "chat-42")
    assert first.name == "chat-42"
    otto = await service.ensure_agent("otto")
    assert (otto.user_memory_enabled, otto.agent_memory_enabled) == (True, True)
    user = await service.ensure_user("user-8731")
    assert (first.agents, first.users) == ((otto.id,), (user.id,))
    wider = await service.ensure_session("chat-42", agents=["mira"], users=["lena"])
    assert wider.agents == (otto.id, MIRA.id)
    assert wider.users == (user.id, LENA.id)
    assert (await service.ensure_user("LENA")).id == LENA.id
    actions = {entry.action for entry in store.log.audit(target_id=user.id)}
    assert actions == {"add_user"}


@sqlite_only
async def test_a_session_does_not_become_incognito_silently(service: MemoryService) -> None:
    with pytest.raises(ConflictError, match="not incognito"):
        await service.ensure_session("talk", agents=["mira"], incognito=True)
    await service.ensure_session("secret", agents=["mira"], users=["lena"], incognito=True)
    secret = await service.ensure_session("secret", agents=["mira"], incognito=True)
    assert secret.incognito


@sqlite_only
async def test_kinds_of_scopes_may_be_text(service: MemoryService) -> None:
    for kinds in (["user"], [ScopeKind.USER], "user"):
        found = await service.search(
            "tea",
            agent_id="mira",
            user_id="lena",
            kinds=kinds,  # type: ignore[arg-type]
        )
        assert len(found.hits) == 1
    assert isinstance(make_message(TALK), Message)
