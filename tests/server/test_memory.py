"""What memory a chat gets, and that a chat never fails or waits for want of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from edenmem.engine.chats import sessions
from edenmem.engine.chats.sessions import name_session
from edenmem.errors import StoreUnreachable
from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.server.proxy import routes
from tests.server.door import Door, serving, turns, with_server
from tests.support.memory import add_fact
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def known(running_door: Door) -> Door:
    """A server that knows something of Anna, of Boris and of another agent."""
    store, mira = running_door.store, running_door.agent.id
    for scope, text in (
        (Scope.user(mira, running_door.anna.id), "Anna's boat is called Moth & Flame."),
        (Scope.user(mira, running_door.boris.id), "Boris's boat is called Secret."),
        (Scope.agent(mira), "Boats are kept in the boat house."),
        (Scope.agent(running_door.other.id), "Otto's boat sank."),
    ):
        add_fact(store, scope, text, formed_at=utc_now())
    return running_door


def prompt(door: Door) -> str:
    return str(door.upstream.last.messages)


def test_the_context_goes_to_the_end_of_the_first_instructions(known: Door, door: Door) -> None:
    asked = [{"role": "system", "content": "Be kind."}, *turns("Hello, who am I?")]
    door.chat(messages=asked, user="anna")
    first, last = door.upstream.last.messages
    assert first["content"].startswith("Be kind.\n\n")
    assert "<MemoryContext>" in first["content"]
    assert "Moth &amp; Flame" in first["content"]
    assert last == asked[1]  # what is in the context is not repeated
    door.chat("Hello, who am I?", user="anna")
    assert [m["role"] for m in door.upstream.last.messages] == ["system", "user"]
    parts = [{"type": "text", "text": "Be brief."}]
    door.chat(messages=[{"role": "developer", "content": parts}, *turns("Hi!")], user="anna")
    whole = door.upstream.last.messages[0]
    assert (whole["role"], whole["content"][0]) == ("developer", parts[0])
    assert "<MemoryContext>" in whole["content"][1]["text"]


def test_no_memory_of_another_user_or_agent(known: Door, door: Door) -> None:
    for fields in ({"user": "anna"}, {}, {"user": "stranger"}):
        door.chat("What is the name of the boat?", memory_top_k=50, **fields)
        assert "Secret" not in prompt(door)
        assert "sank" not in prompt(door)
        assert ("Moth" in prompt(door)) == (fields == {"user": "anna"})
    headers = {"X-Edenmem-Agent": "otto"}
    door.chat("What is the name of the boat?", user="anna", headers=headers)
    assert "Moth" not in prompt(door)
    assert "sank" in prompt(door)


def test_hits_are_in_an_answer_that_is_not_streamed(known: Door, door: Door) -> None:
    answer = door.chat("Tell me of the boat.", user="anna", memory_top_k=2)
    hits = answer.json()["memory_hits"]
    assert {hit["content"] for hit in hits} == {
        "Anna's boat is called Moth & Flame.",
        "Boats are kept in the boat house.",
    }
    assert all(0 <= hit["score"] <= 1 and hit["created_at"] for hit in hits)
    assert "memory_hits" not in door.chat("The boat?", user="anna", memory_top_k=0).json()
    none = door.chat(
        "The boat called Moth?", user="anna", memory_top_k=5, memory_score_threshold=1.0
    )
    assert len(none.json()["memory_hits"]) < 2
    aged = door.chat("The boat?", user="anna", memory_top_k=5, memory_recency_weight=1.0)
    assert len(aged.json()["memory_hits"]) == 2


@pytest.fixture
def strict(known: Door) -> Iterator[Door]:
    """A second server on the same store, with no patience."""
    settings = with_server(
        known.settings,
        context_timeout_seconds=1.0,
        search_timeout_seconds=1.0,
        store_timeout_seconds=1.0,
    )
    with serving(known.service, settings, agent=known.agent) as url:
        yield _at(known, f"{url}/v1")


def _at(door: Door, url: str) -> Door:
    return replace(door, url=url)


@pytest.mark.parametrize("stage", ["context", "search", "find_turn", "store_turn"])
def test_a_stage_that_hangs_is_left_out(
    strict: Door, door: Door, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    release = threading.Event()
    chats = door.service.chats

    async def hang(*given: Any, **named: Any) -> Any:
        await asyncio.to_thread(release.wait, 30)
        return []

    def block(*given: Any) -> None:
        release.wait(30)

    if stage in ("context", "search"):
        monkeypatch.setattr(chats.memory, stage, hang)
    else:
        monkeypatch.setattr(chats, stage, block)
    try:
        answer = strict.chat("The boat?", user="anna", memory_id=f"hang-{stage}")
    finally:
        release.set()
    assert answer.status_code == 200
    name = {"find_turn": "session", "store_turn": "store"}.get(stage, stage)
    assert f"{name}: not done within 1 s" in answer.headers["x-edenmem-left-out"]


@pytest.mark.parametrize("failure", ["late", "failed"])
def test_a_turn_that_was_not_stored_in_time_is_stored_with_its_answer(
    strict: Door, door: Door, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    chats, release = door.service.chats, threading.Event()
    store_turn, calls = chats.store_turn, []

    def store_late(turn: Any) -> None:
        calls.append(turn)
        if len(calls) == 1 and failure == "failed":
            raise StoreUnreachable("for a moment")
        if len(calls) == 1:
            release.wait(3)
        store_turn(turn)

    monkeypatch.setattr(chats, "store_turn", store_late)
    asking = {"user": "anna", "memory_id": f"late-{failure}", "memory_top_k": 0}
    answer = strict.chat("A late boat?", **asking)
    spoken = [("user", "A late boat?"), ("assistant", "answer to: A late boat?")]
    release.set()
    until(lambda: door.said(answer) == spoken)
    assert "store: " in answer.headers["x-edenmem-left-out"]
    strict.chat("And now?", **asking)
    assert door.said(answer)[:3] == [*spoken, ("user", "And now?")]


def test_a_chat_that_a_stop_cuts_off_during_its_search_is_stored(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching, store_turn = threading.Event(), door.service.chats.store_turn

    def store_slowly(turn: Any) -> None:
        time.sleep(0.3)
        store_turn(turn)

    async def hang(*given: Any, **named: Any) -> Any:
        searching.set()
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(20):  # it ends some turns of the loop after the server asked it to
                await asyncio.sleep(0)

    monkeypatch.setattr(door.service.chats.memory, "search", hang)
    monkeypatch.setattr(door.service.chats, "store_turn", store_slowly)
    settings = with_server(door.settings, search_timeout_seconds=60.0)
    with ThreadPoolExecutor(1) as pool:
        with serving(door.service, settings, agent=door.agent, shutdown_seconds=1) as url:
            last = replace(door, url=f"{url}/v1")
            asking = pool.submit(last.chat, "Last?", user="anna", memory_id="last")
            assert searching.wait(10)
        stored = door.said(name_session(door.agent, door.anna, "", "last"))
        assert asking.result(10).status_code == 503
    assert stored == [("user", "Last?")]


def test_an_answer_that_nobody_waits_for_is_closed(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client leaves when the upstream has begun to answer and the turn is not stored yet."""
    release, store_turn = threading.Event(), door.service.chats.store_turn

    def store_late(turn: Any) -> None:
        release.wait(30)
        store_turn(turn)

    monkeypatch.setattr(door.service.chats, "store_turn", store_late)
    with door.asking("Left alone.", model="stall", stream=True):
        assert door.upstream.reached.wait(30)
    try:
        assert door.upstream.hung_up.wait(20)
    finally:
        release.set()


def test_an_answer_that_has_arrived_is_stored_though_the_client_left(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, has_arrived = threading.Event(), threading.Event()
    count = routes._Exchange._count_use

    async def count_late(*given: Any) -> None:
        await count(*given)
        has_arrived.set()  # before the answer is stored
        await asyncio.to_thread(release.wait, 30)

    monkeypatch.setattr(routes._Exchange, "_count_use", count_late)
    with door.asking("Who waits?", user="anna", memory_id="left"):
        assert has_arrived.wait(30)
    release.set()
    monkeypatch.undo()
    session = name_session(door.agent, door.anna, "", "left")
    until(lambda: len(door.said(session)) == 2)
    assert door.said(session) == [("user", "Who waits?"), ("assistant", "answer to: Who waits?")]


@pytest.mark.parametrize("stage", ["context", "search", "find_turn", "store_turn", "store_answer"])
def test_a_stage_that_fails_is_left_out(
    known: Door, door: Door, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def fail(*given: Any, **named: Any) -> Any:
        raise StoreUnreachable("cannot reach mongodb://secret-host")

    async def fail_later(*given: Any, **named: Any) -> Any:
        fail()

    chats = door.service.chats
    if stage in ("context", "search"):
        monkeypatch.setattr(chats.memory, stage, fail_later)
    else:
        monkeypatch.setattr(chats, stage, fail)
    answer = door.chat("The boat?", user="anna", memory_id=f"fail-{stage}")
    assert answer.status_code == 200
    assert ": StoreUnreachable" in answer.headers["x-edenmem-left-out"]
    assert "secret-host" not in str(answer.headers)
    streamed = door.chat("The boat?", user="anna", memory_id=f"fail-{stage}", stream=True)
    assert streamed.content.endswith(b"[DONE]\n\n")


def test_without_a_store_memory_is_read_and_nothing_is_kept(known: Door, door: Door) -> None:
    settings = door.settings
    server = msgspec.structs.replace(settings.server, store_chats=False)
    settings = msgspec.structs.replace(settings, server=server)
    with serving(door.service, settings, agent=door.agent) as url:
        answer = _at(door, f"{url}/v1").chat("My boat?", user="anna", memory_id="unstored")
    assert answer.status_code == 200
    assert "Moth" in prompt(door)
    assert door.store.host.session(answer.headers["x-edenmem-session"]) is None


def test_a_long_list_of_branches_is_not_walked(known: Door, door: Door) -> None:
    """The number of look-ups grows with the logarithm of the number of sessions."""
    chats = door.service.chats
    request = sessions.ChatRequest(agent=door.agent, host_user="many")
    asked: list[str] = []

    class Host:
        def session(self, session_id: str) -> object:
            asked.append(session_id)
            return object() if session_id in there else None

    runtime: Any = type("R", (), {"store": type("S", (), {"host": Host()})()})()
    there = set[str]()
    for number in range(1, 3001):
        there.add(sessions.derived_id("chat", *request.owner_key, "", "h", str(number)))
    assert len(sessions._branches(runtime, request, "h")) == 3000
    assert len(asked) < 30
    assert chats is not None


def test_the_server_says_what_was_left_out_in_its_metrics(known: Door, door: Door) -> None:
    door.chat("Hello.", user="nobody-known")
    with httpx.Client(trust_env=False) as client:
        numbers = client.get(door.url.removesuffix("/v1") + "/metrics").text
    assert 'edenmem_memory_skipped_total{reason="unknown' in numbers
    assert 'edenmem_chat_tokens_total{direction="in"}' in numbers
