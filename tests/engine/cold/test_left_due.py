"""Texts left due by a run killed after its formations, consolidated by the next run."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.consolidation.consolidator import Consolidator
from edenmem.errors import ProviderTimeout
from edenmem.models.scope import Scope
from tests.engine.cold.conftest import (
    ADAM,
    ANNA,
    EVE,
    ON_EACH_STORE,
    Quiet,
    hang_until_time_is_up,
    make_quiet,
    no_clock,
)
from tests.support.llm import FakeLLM

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store
    from tests.support.embedder import FakeEmbedder

_HERS = Scope.user(EVE.id, ANNA.id)
_TEXT = "Anna collects maps."


def _learning(quiet: Quiet) -> Quiet:
    """Answer with enough reflections on Anna to make her text due."""
    items = [{"content": f"Anna likes map {place}.", "private": False} for place in range(4)]
    nothing: dict[str, Any] = {"agent": [], "group": [], "session": [], "shards": []}
    quiet.llm.script("reflections", {**nothing, "user": items})
    quiet.llm.script("consolidate", {"text": _TEXT})
    return quiet


async def _dies_before_consolidating(quiet: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run end after the formation by a session timeout."""
    with monkeypatch.context() as patch:
        no_clock(patch)
        patch.setattr(Consolidator, "due", hang_until_time_is_up)
        report = await quiet.run()
    assert len(report.timed_out) == 1
    assert _text(quiet.store) == ("", 4)


def _text(store: Store, scope: Scope = _HERS) -> tuple[str, int]:
    """Return the scope's text and its number of pending reflections."""
    document = store.memory.consolidations((scope,))[scope]
    return document.consolidated_content, len(document.unabsorbed_ids)


@ON_EACH_STORE
async def test_the_next_run_consolidates_after_a_timeout(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _learning(quiet).add("cut off")
    await _dies_before_consolidating(quiet, monkeypatch)
    report = await quiet.run()
    assert (report.formed, report.consolidations, report.failed) == (0, 1, ())
    assert _text(quiet.store) == (_TEXT, 0)
    assert quiet.llm.tasks.count("facts") == 1  # no message was formed again
    quiet.check([session])
    assert (await quiet.run()).considered == 0


def test_the_next_run_consolidates_after_a_kill(
    sqlite_store: Store, llm: FakeLLM, embedder: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = _learning(make_quiet(sqlite_store, llm, embedder))
    session = quiet.add("killed")

    async def die(*args: object, **options: object) -> list[Scope]:
        os._exit(42)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(Consolidator, "due", die)
        try:
            asyncio.run(quiet.run())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert _text(quiet.store) == ("", 4)
    report = asyncio.run(quiet.run())
    assert (report.formed, report.consolidations) == (0, 1)
    assert _text(quiet.store) == (_TEXT, 0)
    quiet.check([session])


async def test_every_run_retries_after_an_outage(quiet: Quiet) -> None:
    _learning(quiet).add("outage")
    quiet.llm.script("consolidate", [ProviderTimeout("no answer"), ProviderTimeout("no answer")])
    for _ in range(2):
        [failure] = (await quiet.run()).failed
        assert failure.reason == "consolidation: no answer"
    assert (await quiet.run()).consolidations == 1
    assert _text(quiet.store) == (_TEXT, 0)
    assert (await quiet.run()).considered == 0


async def test_useless_answers_are_not_retried_by_every_run(quiet: Quiet) -> None:
    _learning(quiet).add("blank")
    quiet.llm.script("consolidate", {"text": "  "})
    failed = [len((await quiet.run()).failed) for _ in range(4)]
    assert failed == [1, 1, 0, 0]
    assert _text(quiet.store) == ("", 4)  # until the next formation


async def test_only_due_scopes_cost_a_call(quiet: Quiet) -> None:
    _learning(quiet).add("both", agents=[EVE, ADAM])
    assert (await quiet.run()).consolidations == 2
    asked = len(quiet.llm.requests)
    assert [(await quiet.run()).considered for _ in range(2)] == [1, 0]
    assert len(quiet.llm.requests) == asked
