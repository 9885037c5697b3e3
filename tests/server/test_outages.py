"""What is said while the store is unavailable is stored once, when it is available again."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from edenmem.engine.service import MemoryService
from edenmem.errors import DocumentDamaged, StoreError, StoreReadOnly, StoreUnreachable
from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id, utc_now
from edenmem.server.proxy import retries
from edenmem.server.proxy.background import Background
from edenmem.server.proxy.recording import Recording
from edenmem.server.proxy.retries import Retries
from edenmem.server.state import Metrics
from edenmem.settings.schema import ServerSettings
from tests.server.door import Door, make_settings, serving, with_server
from tests.server.upstream import FakeUpstream
from tests.support.exhaustive import spared
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Outage:
    """Functions of the store that fail until the outage ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, door: Door) -> None:
        self._patch = monkeypatch
        self._chats = door.service.chats
        self._is_over = threading.Event()
        self.calls: list[str] = []

    def of(self, *places: tuple[Any, str], error: type[Exception] = StoreUnreachable) -> None:
        for owner, name in places:
            self._patch.setattr(owner, name, self._failing(name, getattr(owner, name), error))

    def _failing(
        self, name: str, made: Callable[..., Any], error: type[Exception]
    ) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if not self._is_over.is_set():
                self.calls.append(name)
                raise error("gone")
            return made(*given, **named)

        return call

    def end(self) -> None:
        self._is_over.set()

    def replace(self, name: str, function: Callable[..., Any]) -> None:
        self._patch.setattr(self._chats, name, function)

    def undo(self) -> None:
        self._patch.undo()


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch, door: Door) -> Outage:
    monkeypatch.setattr(retries, "_FIRST_DELAY", 0.05)
    return Outage(monkeypatch, door)


def chats_counted(door: Door) -> dict[str, int]:
    """The metrics of chats that wait and of chats that are lost."""
    with httpx.Client(trust_env=False) as client:
        lines = client.get(f"{door.url.removesuffix('/v1')}/metrics").text.splitlines()
    named = re.compile(r'edenmem_chats_(waiting|lost)(?:_total{reason="(\w+)"})? ([\d.]+)')
    found = (match for line in lines if (match := named.fullmatch(line)))
    return {
        f"{what} {reason or ''}".strip(): int(float(n))
        for what, reason, n in (match.groups() for match in found)
    }


def texts_of(door: Door, key: str) -> list[str]:
    return [text for _, text in said_to(door, key)]


@contextmanager
def second_server(door: Door, **server: Any) -> Iterator[None]:
    """Chat with another server on the same store."""
    settings, before = with_server(door.settings, **server), door.url
    with serving(door.service, settings, agent=door.agent) as url:
        door.url = f"{url}/v1"
        try:
            yield
        finally:
            door.url = before


def said_to(door: Door, key: str) -> list[tuple[str, str]]:
    """The messages of the sessions with this name."""
    found = [session for session in door.store.host.sessions() if session.name == key]
    assert len(found) <= 1
    return door.said(found[0].id) if found else []


@pytest.mark.parametrize(
    ("step", "model", "status"),
    [
        ("store_turn", "limited", 429),
        ("find_turn", "reset", 502),
        ("find_user", "nonsense", 200),
    ],
)
def test_a_message_without_an_answer_is_stored_after_an_outage(
    door: Door, outage: Outage, step: str, model: str, status: int
) -> None:
    key = f"{step}-{model}"
    outage.of((door.service.chats, step))
    answer = door.chat("Is it kept?", user="anna", memory_id=key, model=model)
    assert answer.status_code == status
    assert "StoreUnreachable" in answer.headers["x-edenmem-left-out"]
    until(lambda: len(outage.calls) > 2)
    assert not said_to(door, key)
    outage.end()
    until(lambda: said_to(door, key) == [("user", "Is it kept?")])


@pytest.mark.parametrize(
    ("step", "stream"),
    [
        ("store_turn", False),
        ("find_turn", True),
        ("find_user", True),
        ("store_answer", False),
        ("store_answer", True),
    ],
)
def test_a_message_and_its_answer_are_stored_after_an_outage(
    door: Door, outage: Outage, step: str, stream: bool
) -> None:
    key = f"answered-{step}-{stream}"
    outage.of((door.service.chats, step))
    asking = {"user": "anna", "memory_id": key}
    assert door.chat("Kept?", **asking, stream=stream).status_code == 200
    outage.end()
    spoken = [("user", "Kept?"), ("assistant", "answer to: Kept?")]
    until(lambda: said_to(door, key) == spoken)
    door.chat("And this?", **asking)
    assert said_to(door, key)[:3] == [*spoken, ("user", "And this?")]


def test_a_message_that_is_late_and_then_fails_is_stored(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats, release = door.service.chats, threading.Event()
    outage.of((chats, "store_turn"))
    fail = chats.store_turn

    def wait(turn: Any) -> None:
        release.wait(30)
        fail(turn)

    monkeypatch.setattr(chats, "store_turn", wait)
    with second_server(door, store_timeout_seconds=0.1):
        answer = door.chat("Late?", user="anna", memory_id="late", model="limited")
        assert "store: not done within" in answer.headers["x-edenmem-left-out"]
        release.set()
        until(lambda: bool(outage.calls))
        outage.end()
        until(lambda: said_to(door, "late") == [("user", "Late?")])


@pytest.mark.parametrize("step", ["store_turn", "find_turn"])
def test_the_next_message_waits_for_the_ones_before(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(retries, "_FIRST_DELAY", 60)  # only the next chat stores it
    outage.of((door.service.chats, step))
    asking: dict[str, Any] = {"user": "anna", "memory_id": f"order-{step}"}
    for text in ("One.", "Two."):  # a client that sends only new messages
        door.chat(text, **asking)
    outage.end()
    door.chat("Three.", **asking)
    assert [text for _, text in said_to(door, asking["memory_id"])] == [
        *("One.", "answer to: One.", "Two.", "answer to: Two.", "Three.", "answer to: Three.")
    ]


def test_a_server_that_stops_stores_what_waits(door: Door, outage: Outage) -> None:
    outage.of((door.service.chats, "store_turn"))
    with second_server(door):
        door.chat("Before the end.", user="anna", memory_id="end", model="limited")
        outage.end()
    assert said_to(door, "end") == [("user", "Before the end.")]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("store_turn", StoreReadOnly),
        ("store_turn", DocumentDamaged),
        ("find_turn", DocumentDamaged),
        ("find_turn", ValueError),
    ],
)
def test_a_message_that_the_store_never_takes_is_given_up(
    door: Door, outage: Outage, step: str, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    outage.of((door.service.chats, step), error=error)
    asking: dict[str, Any] = {"user": "anna", "memory_id": f"never-{step}-{error.__name__}"}
    assert door.chat("Never.", **asking, model="limited").status_code == 429
    until(lambda: "messages of a chat lost" in caplog.text)
    calls = len(outage.calls)
    outage.end()
    door.chat("Ever.", **asking)  # after the chats that wait
    assert said_to(door, asking["memory_id"])[0] == ("user", "Ever.")
    assert len(outage.calls) == calls


def test_no_more_chats_wait_than_fit(
    door: Door,
    outage: Outage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(retries, "_MOST_BYTES", 20_000)
    lost = chats_counted(door).get("lost memory", 0)
    outage.of((door.service.chats, "store_turn"))
    for number in range(3):
        door.chat("Fits?", user="anna", memory_id=f"fit-{number}", model="limited")
    assert caplog.messages.count("messages of a chat lost: too many chats wait for the store") == 2
    counted = chats_counted(door)
    assert (counted["waiting"], counted["lost memory"]) == (1, lost + 2)
    outage.end()
    until(lambda: said_to(door, "fit-0") == [("user", "Fits?")])
    door.chat("Fits?", user="anna", memory_id="fit-1", model="limited")
    assert said_to(door, "fit-1") == [("user", "Fits?")]


@pytest.mark.parametrize("step", ["store_turn", "find_turn"])
def test_the_same_word_is_stored_as_often_as_it_is_said(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(retries, "_FIRST_DELAY", 60)
    asking: dict[str, Any] = {"user": "anna", "memory_id": f"yes-{step}"}
    for text in ("Shall I?", "Really?"):
        door.chat(text, **asking)
    outage.of((door.service.chats, step))
    for _ in range(2):
        door.chat("yes", **asking)
    outage.end()
    door.chat("Thanks.", **asking)
    said = ("Shall I?", "Really?", "yes", "yes", "Thanks.")
    assert texts_of(door, asking["memory_id"]) == [
        each for text in said for each in (text, f"answer to: {text}")
    ]


def test_messages_that_were_missed_keep_their_time(door: Door, outage: Outage) -> None:
    """Also if the store is back for a later message before it is for an earlier one."""
    find, left = door.service.chats.find_turn, 4

    def find_seldom(request: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreUnreachable("gone")
        return find(request)

    outage.replace("find_turn", find_seldom)
    before = utc_now()
    for text in ("One.", "Two.", "Three."):  # "One." is tried before each, and fails
        door.chat(text, user="anna", memory_id="times")
    after = utc_now()
    until(lambda: len(said_to(door, "times")) == 6)
    said = ("One.", "Two.", "Three.")
    assert texts_of(door, "times") == [
        each for text in said for each in (text, f"answer to: {text}")
    ]
    (session,) = (each for each in door.store.host.sessions() if each.name == "times")
    assert all(before <= message.created_at <= after for message in door.messages(session.id))


def test_chats_that_fail_for_good_hold_back_no_others(door: Door, outage: Outage) -> None:
    store, is_over = door.service.chats.store_turn, threading.Event()

    def refuse(turn: Any) -> None:
        if not is_over.is_set() or turn.session.name.startswith("refused"):
            raise StoreError("refused: document failed validation")
        store(turn)

    outage.replace("store_turn", refuse)
    for number in range(retries._MOST_FAILURES):
        door.chat("Never.", user="boris", memory_id=f"refused-{number}", model="limited")
    door.chat("Behind.", user="anna", memory_id="behind", model="limited")
    is_over.set()
    until(lambda: texts_of(door, "behind") == ["Behind."])
    assert chats_counted(door)["waiting"] == retries._MOST_FAILURES
    outage.undo()
    until(lambda: chats_counted(door)["waiting"] == 0)


def test_a_chat_waits_only_for_its_own_conversation(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_FIRST_DELAY", 60)
    chats = door.service.chats
    outage.of((chats, "store_turn"))
    door.chat("Long.", user="boris", memory_id="slow", model="limited")
    outage.end()
    find, release = chats.find_turn, threading.Event()

    def wait(request: Any) -> Any:
        if request.key == "slow":
            assert release.wait(60)
        return find(request)

    outage.replace("find_turn", wait)
    quick = door.chat("Quick.", user="anna", memory_id="quick")
    assert "x-edenmem-left-out" not in quick.headers
    assert texts_of(door, "quick") == ["Quick.", "answer to: Quick."]
    assert not said_to(door, "slow")
    release.set()
    door.chat("Now.", user="boris", memory_id="slow", model="limited")
    assert texts_of(door, "slow") == ["Long.", "Now."]


async def test_a_chat_that_fails_for_good_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """But not while nothing else is stored: then the store is unavailable."""

    class Failing:
        lane, is_lost, attempts = "lane", False, 0

        def pack(self) -> bytes:
            return b""

        async def store_late(self) -> None:
            self.attempts += 1
            raise StoreError("refused")

    service: Any = None
    background, metrics = Background(service, ServerSettings()), Metrics()
    waiting, chat = Retries(background, metrics), Failing()
    waiting.add(chat)
    for _ in range(2 * retries._MOST_ATTEMPTS):
        assert not await waiting.attempt("lane")
    for _ in range(retries._MOST_ATTEMPTS - 1):
        waiting.stored += 1
        assert not await waiting.attempt("lane")
    assert b"edenmem_chats_waiting 1.0" in metrics.expose()
    waiting.stored += 1
    assert await waiting.attempt("lane")
    assert (chat.attempts, chat.is_lost) == (3 * retries._MOST_ATTEMPTS, True)
    assert b"edenmem_chats_waiting 0.0" in metrics.expose()
    assert caplog.messages == ["messages of a chat lost: StoreError: refused"]
    await background.drain()


def test_the_same_word_is_stored_again_while_the_first_is_written(
    door: Door, outage: Outage
) -> None:
    """A store that is slow, and not down."""
    asking: dict[str, Any] = {"user": "anna", "memory_id": "slowly"}
    for text in ("Shall I?", "Really?"):
        door.chat(text, **asking)
    store, release = door.service.chats.store_turn, threading.Event()

    def wait(turn: Any) -> None:
        assert release.wait(60)
        store(turn)

    with second_server(door, store_timeout_seconds=0.2):
        outage.replace("store_turn", wait)
        for _ in range(2):
            door.chat("yes", **asking)
        release.set()
        until(lambda: len(said_to(door, "slowly")) == 8)
    assert texts_of(door, "slowly")[4:] == ["yes", "answer to: yes"] * 2


@pytest.mark.parametrize("seed", [0, spared(1), spared(2)])
def test_conversations_survive_a_flaky_store(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Any call may fail before or after its write, or be slow; nothing is lost or doubled."""
    monkeypatch.setattr(retries, "_LONGEST_DELAY", 0.3)
    chance, is_over = random.Random(seed), threading.Event()

    def flaky(made: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            fails = not is_over.is_set() and chance.random() < 0.5
            if fails and chance.random() < 0.3:
                time.sleep(0.3)
            if fails and chance.random() < 0.6:
                raise StoreUnreachable("gone")
            result = made(*given)
            if fails:
                raise StoreUnreachable("gone after the write")
            return result

        return call

    for step in ("find_agent", "find_user", "find_turn", "store_turn", "store_answer"):
        outage.replace(step, flaky(getattr(door.service.chats, step)))

    def converse(number: int) -> tuple[str, list[str]]:
        key, said, choice = f"flaky-{seed}-{number}", list[str](), random.Random(number)
        for place in range(8):
            said.append(choice.choice(["yes", "no"]) if place > 1 else f"{key} {place}")
            given = said[-1:] if number % 2 else said
            answer = door.chat(*given, user="anna", memory_id=key, stream=choice.random() < 0.3)
            assert answer.status_code == 200
            said.append(f"answer to: {said[-1]}")
        return key, said

    with second_server(door, store_timeout_seconds=0.2):
        with ThreadPoolExecutor(4) as pool:
            spoken = dict(pool.map(converse, range(4)))
        is_over.set()
        until(lambda: {key: texts_of(door, key) for key in spoken} == spoken)


def test_a_newer_answer_of_another_server_stays(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_FIRST_DELAY", 60)
    asking: dict[str, Any] = {"user": "anna", "memory_id": "newer"}
    outage.of((door.service.chats, "store_answer"))
    door.chat("Which?", **asking)
    outage.end()
    with second_server(door):
        door.chat("Which?", **asking, model="choices", stream=True)
    door.chat("Next.", **asking)
    assert texts_of(door, "newer")[:3] == ["Which?", "first ö", "Next."]


def forget(door: Door, *, messages: bool, **subject: str) -> None:
    erasure = door.service.erasure
    plan = asyncio.run(erasure.plan(erasure.find_subject(**subject)))
    assert asyncio.run(erasure.forget(plan, messages=messages)).complete


@pytest.mark.parametrize(
    ("step", "create_users"),
    [
        ("find_user", False),
        ("find_user", True),
        ("find_turn", False),
        ("store_turn", True),
        ("store_answer", False),
    ],
)
def test_a_chat_of_a_user_who_is_forgotten_meanwhile_is_not_stored(
    door: Door, outage: Outage, step: str, create_users: bool
) -> None:
    name = f"gone-{step}-{create_users}"
    user = User(id=new_id(), username=name, created_at=utc_now())
    assert door.service.accounts.add(user)
    asking: dict[str, Any] = {"user": name, "memory_id": name}
    with second_server(door, create_users=create_users):
        door.chat("I am ill.", **asking)
        chats = door.service.chats
        outage.of((chats, step), *[(chats, "add_user")] * (step == "find_user"))
        door.chat("Very ill.", **asking)
        forget(door, messages=True, user=name)
        outage.end()
        until(lambda: chats_counted(door) == {"waiting": 0, "lost error": 1})
    assert not said_to(door, name)
    assert door.store.host.user(user.id) is None
    assert name not in {each.username for each in door.store.host.users()}


@pytest.mark.parametrize("kind", ["agent", "session"])
def test_a_chat_of_an_agent_or_session_that_is_forgotten_meanwhile_is_not_stored(
    door: Door, outage: Outage, kind: str
) -> None:
    """Though the messages from before stay: no memory is formed from them any more."""
    name = f"forgotten-{kind}"
    headers = {"X-Edenmem-Agent": door.other.username}
    asking: dict[str, Any] = {"user": "anna", "memory_id": name, "headers": headers}
    with second_server(door):
        session = door.chat("Before.", **dict(asking)).headers["x-edenmem-session"]
        outage.of((door.service.chats, "store_turn"))
        door.chat("Missed.", **dict(asking))
        subject = {"agent": door.other.username, "session": session}[kind]
        forget(door, messages=False, **{kind: subject})
        outage.end()
        until(lambda: chats_counted(door) == {"waiting": 0, "lost error": 1})
        assert texts_of(door, name) == ["Before.", "answer to: Before."]
        door.chat("After.", **dict(asking))
    assert texts_of(door, name)[2:] == ["After.", "answer to: After."]


def test_the_size_of_a_chat_that_waits_includes_its_answer(
    door: Door, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    pack = Recording.pack

    def note(self: Recording) -> bytes:
        packed = pack(self)
        sizes.append(len(packed))
        return packed

    monkeypatch.setattr(Recording, "pack", note)
    outage.of((door.service.chats, "store_turn"))
    history = ["Go on."] * 101
    door.chat(*history, user="anna", memory_id="size")
    outage.end()
    until(lambda: len(said_to(door, "size")) == len(history) + 1)
    before, after = sizes
    assert len("".join(history)) < before < 10 * len("".join(history))
    assert after > before + len("answer to: Go on.")


def test_a_replaced_file_is_an_outage(
    tmp_path: Path, upstream: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    """FAILURES 118: answers were 200 and ``/ready`` was ok, and what was stored was lost."""
    settings = make_settings(tmp_path, upstream)
    service = MemoryService.without_models(settings)
    service.setup.make()
    assert service.accounts.add(Agent(id=new_id(), username="mira", created_at=utc_now()))
    path, away = tmp_path / "memory.db", tmp_path / "away.db"
    shutil.copy(path, tmp_path / "backup.db")
    with serving(service, settings) as url, httpx.Client(trust_env=False, base_url=url) as client:

        def add(text: str) -> int:
            fact = {"agent": "mira", "scope": "agent", "content": text}
            return client.post("/api/facts", json=fact).status_code

        assert add("The mole is open.") == 201
        path.rename(away)
        (tmp_path / "backup.db").rename(path)
        assert add("The walk is long.") == 503
        ready = client.get("/ready")
        assert (ready.status_code, ready.json()["store"]) == (503, "failed")
        assert caplog.text.count("memory.db was replaced, moved or deleted") == 2
        away.rename(path)
        assert add("The walk is short.") == 201
        answer = client.get("/api/facts", params={"agent": "mira"})
        assert ["short" in answer.text, "open" in answer.text, "long" in answer.text] == [
            *(True, True),
            False,
        ]
    service.close_store()
