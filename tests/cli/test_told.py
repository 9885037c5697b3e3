"""Which replies had a memory: before a change, with its origin, and as the agent saw it."""

from __future__ import annotations

import asyncio

import pytest

from edenmem.engine.service import MemoryService
from edenmem.settings.schema import Settings, StoreSettings
from tests.cli.conftest import VISIT, Cli, controls

FACT = "f" * 23 + "1"
TEXT = "mira/user:lena"


@pytest.fixture
def own(cli: Cli) -> Cli:
    """Commands in this process, after an agent was given two contexts."""
    own = cli

    async def give() -> None:
        service = MemoryService.without_models(Settings(store=StoreSettings(uri=cli.uri)))
        async with service:
            for _ in range(2):
                await service.get_memory_context(VISIT)

    asyncio.run(give())
    return own


def test_a_change_names_the_sessions_that_saw_the_memory(own: Cli) -> None:
    said = "told before: session first-visit (version 2, 2 replies, now)"
    assert said in own("edit", FACT, "--content", "Lena folds ten lanterns.", "--yes").ok().err
    assert said in own("undo", "--last", "--yes").ok().err
    assert said in own("delete", FACT, "--dry-run").ok().err
    assert said in own("edit", TEXT, "--content", "Lena folds.", "--yes").ok().err
    added = own("fact", "add", "--agent", "mira", "--scope", "agent", "--content", "It rains.")
    assert "told before" not in added.ok().err
    assert "session first-visit (2 replies, now)" in own("forget", "--fact", FACT, "--dry-run").out
    told = own.json("forget", "--fact", FACT, "--dry-run")[0]["told"]
    assert [one["reply"]["session_id"] for one in told] == [VISIT, VISIT]


def test_why_lists_the_replies(own: Cli) -> None:
    shown = own("why", FACT).ok().out
    assert "now, context, session first-visit: version 2 (" in shown
    (data,) = own.json("why", FACT)
    assert [one["version"] for one in data["told"]] == [2, 2]
    newest, oldest = own.json("why", TEXT)
    assert [len(newest["told"]), len(oldest["told"])] == [2, 0]
    assert "version 2 (" in own("why", TEXT).ok().out


def test_a_context_is_shown_as_it_was(own: Cli) -> None:
    (reply, _) = own.json("why", FACT)[0]["told"]
    own("edit", FACT, "--content", "Lena folds ten lanterns.", "--yes").ok()
    shown = own("context", "--as-told", "first-visit").ok()
    assert "ninety whale lanterns" in shown.out
    assert "ten lanterns" not in shown.out
    assert f"told now, context, session first-visit: reply {reply['reply']['id']}" in shown.err
    assert f"fact {FACT}: version 2, changed since, now version 3" in " ".join(shown.err.split())
    assert controls(shown.out) == set()
    (data,) = own.json("context", "--as-told", VISIT, "--reply", reply["reply"]["id"][:20])
    assert data["context"] in shown.out
    states = {item["id"]: item["state"] for item in data["items"]}
    assert states[FACT] == "changed"
    assert set(states.values()) == {"changed", "same"}
    own("forget", "--fact", FACT, "--mentions", "keep", "--yes").ok()
    assert "- fact: forgotten" in own("context", "--as-told", VISIT).ok().out


def test_a_reply_that_is_not_there_is_an_error(own: Cli) -> None:
    assert own("context", "--as-told", "first-visit", "--reply", "3").code == 3
    assert own("context", "--as-told", "9" * 24).code == 3
    assert own("context", "first-visit", "--reply", "1").code == 2
    assert own("context", "--as-told", "first-visit", "--as-of", "1d").code == 2


def test_a_cold_run_removes_what_has_expired(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own.json("cold", "run")[0]["notes_removed"] == 0
    monkeypatch.setenv("EDENMEM_TOLD_DAYS", "0")
    assert own.json("cold", "run")[0]["notes_removed"] == 2
    assert own.json("why", FACT)[0]["told"] == []
