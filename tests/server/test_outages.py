"""What is said while the store is unavailable is stored once, when it is available again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from edenmem.errors import DocumentDamaged, StoreReadOnly, StoreUnreachable
from edenmem.server.proxy import retries
from tests.server.door import Door, serving, with_server
from tests.support.waiting import until


class Outage:
    """Functions of the store that fail until the outage ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
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


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    monkeypatch.setattr(retries, "_FIRST_DELAY", 0.05)
    return Outage(monkeypatch)


def said_to(door: Door, key: str) -> list[tuple[str, str]]:
    """The messages of the sessions with this name."""
    found = [session for session in door.store.host.sessions() if session.name == key]
    assert len(found) <= 1
    return door.said(found[0].id) if found else []


@pytest.mark.parametrize("step", ["store_turn", "find_turn", "find_user"])
@pytest.mark.parametrize(("model", "status"), [("limited", 429), ("reset", 502), ("nonsense", 200)])
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


@pytest.mark.parametrize("step", ["store_turn", "find_turn", "find_user", "store_answer"])
@pytest.mark.parametrize("stream", [False, True])
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
    settings = with_server(door.settings, store_timeout_seconds=0.1)
    with serving(door.service, settings, agent=door.agent) as url:
        door.url, before = f"{url}/v1", door.url
        try:
            answer = door.chat("Late?", user="anna", memory_id="late", model="limited")
        finally:
            door.url = before
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
    with serving(door.service, door.settings, agent=door.agent) as url:
        door.url, before = f"{url}/v1", door.url
        try:
            door.chat("Before the end.", user="anna", memory_id="end", model="limited")
        finally:
            door.url = before
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
    until(lambda: "messages of a chat not stored" in caplog.text)
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
    outage.of((door.service.chats, "store_turn"))
    for number in range(3):
        door.chat("Fits?", user="anna", memory_id=f"fit-{number}", model="limited")
    assert caplog.messages.count("messages of a chat lost: too many chats wait for the store") == 2
    outage.end()
    until(lambda: said_to(door, "fit-0") == [("user", "Fits?")])
    door.chat("Fits?", user="anna", memory_id="fit-1", model="limited")
    assert said_to(door, "fit-1") == [("user", "Fits?")]
