"""Formation beside chats: bounded, one at a time for a session, and given back at the end."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from edenmem.engine.reports import FormationReport
from edenmem.models.formation import Trigger
from edenmem.models.ids import utc_now
from edenmem.server.proxy.background import Background
from edenmem.settings.schema import ServerSettings


class Former:
    """Forms when it is let; ``last`` is the time of each session's last message."""

    can_form = True

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running: list[str] = []
        self.most = 0
        self.begun: list[tuple[str, Trigger]] = []
        self.cancelled: list[str] = []
        self.ended = asyncio.Event()
        self.pause = timedelta()
        self.chats = self
        self.outcome = "applied"

    def due_at(self, session_id: str, agent_id: str) -> datetime:
        self.pause -= timedelta(milliseconds=30)
        return utc_now() + self.pause

    def find_recent(self) -> list[tuple[str, str]]:
        return [("left", "mira")]

    async def form_memories(
        self, session_id: str, *, agent_id: str, trigger: Trigger
    ) -> list[FormationReport]:
        self.begun.append((session_id, trigger))
        self.running.append(session_id)
        self.most = max(self.most, len(self.running))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(session_id)
            raise
        finally:
            self.running.remove(session_id)
        if trigger is Trigger.COLD:
            self.ended.set()
        return [
            FormationReport(
                session_id=session_id,
                agent_id=agent_id,
                outcome=self.outcome,
                messages=4,
                facts_added=2,
                reflections={"user": 1},
            )
        ]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def make(former: Any, *, concurrency: int = 1, form_after: float = 60.0) -> Background:
    settings = ServerSettings(formation_concurrency=concurrency, form_after=form_after)
    return Background(former, settings)


async def test_formation_is_bounded_and_joins_what_came_meanwhile() -> None:
    former = Former()
    background = make(former, concurrency=2)
    for session in ("a", "b", "c", "a", "a", "c"):
        background.form_later(session, "mira")
    await settle()
    assert [session for session, _ in former.begun] == ["a", "b"]
    background.form_later("a", "mira")
    former.gate.set()
    await settle()
    assert sorted(session for session, _ in former.begun) == ["a", "a", "b", "c"]
    assert {trigger for _, trigger in former.begun} == {Trigger.THRESHOLD}
    assert former.most == 2
    await background.drain()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_quiet_session_is_formed_once(is_answered: bool) -> None:
    """Also a message whose answer never came, and also if the pause is longer than at first."""
    former = Former()
    former.gate.set()
    former.pause = timedelta(milliseconds=70)
    background = make(former, form_after=0.01)
    background.form_later("a", "mira", is_answered=is_answered)
    async with asyncio.timeout(20):
        await former.ended.wait()
    expected = [("a", Trigger.THRESHOLD)] * is_answered
    assert former.begun == [*expected, ("a", Trigger.COLD)]
    assert former.pause < timedelta(milliseconds=70)  # it was asked again
    await background.drain()


async def test_what_a_stopped_server_left_is_formed() -> None:
    former = Former()
    background = make(former)
    await background.resume()
    await settle()
    assert former.begun == [("left", Trigger.THRESHOLD)]
    await background.drain()


async def test_the_end_gives_formations_back_and_finishes_writes() -> None:
    former = Former()
    background = make(former)
    written: list[int] = []

    async def write(number: int) -> None:
        await asyncio.sleep(0)
        if number:
            background.start(write(number - 1))
        written.append(number)

    background.form_later("a", "mira")
    background.form_later("b", "mira")
    background.start(write(3))
    await settle()
    await background.drain()
    assert (former.begun, former.cancelled) == ([("a", Trigger.THRESHOLD)], ["a"])
    assert sorted(written) == [0, 1, 2, 3]
    background.form_later("c", "mira")
    await settle()
    assert len(former.begun) == 1


async def test_the_log_counts_what_was_formed(caplog: pytest.LogCaptureFixture) -> None:
    former = Former()
    former.gate.set()
    background = make(former)
    with caplog.at_level(logging.INFO, "edenmem.server"):
        background.form_later("a-session", "mira")
        await settle()
        former.outcome = "waiting"
        background.form_later("another", "mira")
        await settle()
    assert caplog.messages == [
        "formed memory of session a-session (messages: 4, facts added: 2,"
        " changed or removed: 0, reflections: 1)",
        "memory of session another is not formed yet (waiting); see why: edenmem status",
    ]
    await background.drain()
