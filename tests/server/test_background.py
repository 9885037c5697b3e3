"""Formation beside chats: bounded, one at a time for a session, and given back at the end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from edenmem.engine.reports import FormationReport
from edenmem.server.proxy.background import Background


class Former:
    """Forms when it is let."""

    can_form = True

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.running: list[str] = []
        self.most = 0
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    async def maybe_form_memories(self, session_id: str, *, agent_id: str) -> list[Any]:
        self.begun.append(session_id)
        self.running.append(session_id)
        self.most = max(self.most, len(self.running))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(session_id)
            raise
        finally:
            self.running.remove(session_id)
        return [
            FormationReport(
                session_id=session_id,
                agent_id=agent_id,
                outcome="applied",
                messages=4,
                facts_added=2,
                reflections={"user": 1},
            )
        ]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_formation_is_bounded_and_joins_what_came_meanwhile() -> None:
    former: Any = Former()
    background = Background(former, concurrency=2)
    for session in ("a", "b", "c", "a", "a", "c"):
        background.form_later(session, "mira")
    await settle()
    assert former.begun == ["a", "b"]
    background.form_later("a", "mira")
    former.gate.set()
    await settle()
    assert sorted(former.begun) == ["a", "a", "b", "c"]
    assert former.most == 2
    await background.drain()


async def test_the_end_gives_formations_back_and_finishes_writes() -> None:
    former: Any = Former()
    background = Background(former, concurrency=1)
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
    assert (former.begun, former.cancelled) == (["a"], ["a"])
    assert sorted(written) == [0, 1, 2, 3]
    background.form_later("c", "mira")
    await settle()
    assert former.begun == ["a"]


async def test_the_log_counts_what_was_formed(caplog: pytest.LogCaptureFixture) -> None:
    former: Any = Former()
    former.gate.set()
    background = Background(former, concurrency=1)
    with caplog.at_level(logging.INFO, "edenmem.server"):
        background.form_later("a-session", "mira")
        await settle()
    (line,) = caplog.messages
    assert line == (
        "formed memories from 4 messages: 2 facts added, 0 changed or removed, 1 reflections"
    )
    await background.drain()
