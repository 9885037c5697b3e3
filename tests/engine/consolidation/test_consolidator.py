"""Consolidation on a real store with a scripted model."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edenmem.engine.consolidation.consolidator import Consolidator
from edenmem.errors import (
    ConfigError,
    ContextOverflow,
    ProviderRateLimited,
    ProviderTimeout,
    WriteRefused,
)
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import ConsolidationSettings, FormationSettings, LLMSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import FixedClock, ago
from tests.support.llm import HANG, NONSENSE, FakeLLM
from tests.support.memory import add_reflection, consolidate, set_policy
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from tests.engine.conftest import Cast

MODELS = LLMSettings(fast_model="fast", slow_model="slow", premium_model="premium")


def consolidator(cast: Cast, llm: FakeLLM | None, **settings: Any) -> Consolidator:
    return Consolidator(
        make_runtime(cast.store, Settings(llm=MODELS, **settings), llm=llm, clock=FixedClock())
    )


def fill(cast: Cast, scope: Scope, count: int = 4) -> list[str]:
    return [
        add_reflection(
            cast.store,
            scope,
            f"Reflection {number}.",
            formed_at=ago(hours=count - number),
            session_id=scope.session_id or cast.session.id,
        ).id
        for number in range(count)
    ]


def text_of(cast: Cast, scope: Scope) -> str:
    document = cast.store.memory.consolidations((scope,)).get(scope)
    return document.consolidated_content if document else ""


async def test_no_model_is_called_for_a_read_only_store(cast: Cast, llm: FakeLLM) -> None:
    fill(cast, cast.anna_scope)
    llm.script("consolidate", {"text": "[PREFERENCES]\n- teal"})
    store = SqliteStore(Path(cast.store.database.info().location), read_only=True)
    with closing(store.database):
        unable = Consolidator(make_runtime(store, llm=llm, clock=FixedClock()))
        with pytest.raises(WriteRefused, match="open for reading only"):
            await unable.consolidate(cast.anna_scope)
        assert llm.requests == []
        report = await unable.consolidate(cast.anna_scope, dry_run=True)
    assert report.outcome == "dry_run"


async def test_pending_reflections_become_the_text(cast: Cast, llm: FakeLLM) -> None:
    ids = fill(cast, cast.anna_scope)
    llm.script("consolidate", {"text": "VERSION: 9\n[PREFERENCES]\n- teal"})
    report = await consolidator(cast, llm).consolidate(cast.anna_scope)

    assert (report.outcome, report.version, report.absorbed, report.left) == ("written", 1, 4, 0)
    assert (report.before, report.after) == ("", "[PREFERENCES]\n- teal")
    assert (report.words, report.word_limit) == (2, 300)
    assert [usage.task for usage in report.usage] == ["consolidate"]
    document = cast.store.memory.consolidations((cast.anna_scope,))[cast.anna_scope]
    assert document.consolidated_content == "[PREFERENCES]\n- teal"
    assert (document.version, document.unabsorbed_ids) == (1, ())
    assert cast.store.memory.pending(cast.anna_scope) == []
    absorbed = cast.store.memory.reflections((cast.anna_scope,), absorbed=True)
    assert {reflection.id for reflection in absorbed} == set(ids)
    history = cast.store.history.versions("consolidation", "", scope=cast.anna_scope)
    assert [entry.content for entry in history] == ["[PREFERENCES]\n- teal"]

    (request,) = llm.requests
    assert (request.key, request.model) == ("user/eve/anna/0", "slow")
    assert request.user.index("Reflection 0.") < request.user.index("Reflection 3.")


async def test_replay_keys_use_names_instead_of_ids(cast: Cast, llm: FakeLLM) -> None:
    shard = cast.add_shard("festival")
    group = Scope.group(cast.eve.id, "guild")
    llm.script("consolidate", {"text": "A text."})
    for scope in (cast.agent_scope, shard, group, cast.anna_scope, cast.session_scope):
        fill(cast, scope, 1)
        report = await consolidator(cast, llm).consolidate(scope, force=True)
        assert report.outcome == "written"
    fill(cast, cast.agent_scope, 1)
    await consolidator(cast, llm).consolidate(cast.agent_scope, force=True)
    assert [request.key for request in llm.requests] == [
        "agent/eve/0",
        "shard/eve/festival/0",
        "group/eve/guild/0",
        "user/eve/anna/0",
        "session/eve/monday-chat/0",
        "agent/eve/1",
    ]


async def test_no_model_is_called_below_the_threshold(cast: Cast, llm: FakeLLM) -> None:
    work = consolidator(cast, llm)
    assert (await work.consolidate(cast.anna_scope)).outcome == "nothing_pending"
    assert (await work.consolidate(cast.anna_scope, force=True)).outcome == "nothing_pending"
    fill(cast, cast.anna_scope, 3)
    report = await work.consolidate(cast.anna_scope)
    assert (report.outcome, report.left) == ("not_due", 3)
    assert llm.requests == []
    llm.script("consolidate", {"text": "A text."})
    assert (await work.consolidate(cast.anna_scope, force=True)).outcome == "written"


async def test_a_policy_sets_threshold_limit_model_and_instructions(
    cast: Cast, llm: FakeLLM
) -> None:
    set_policy(
        cast.store,
        cast.anna_scope,
        consolidate_at=2,
        word_limit=3,
        slow_model="special",
        consolidation_instructions="Only colours.",
    )
    fill(cast, cast.anna_scope, 2)
    llm.script("consolidate", {"text": "Teal and red."})
    report = await consolidator(cast, llm).consolidate(cast.anna_scope)
    assert (report.outcome, report.word_limit) == ("written", 3)
    (request,) = llm.requests
    assert request.model == "special"
    assert "Only colours." in request.user


async def test_paused_scopes_are_left_alone_unless_forced(cast: Cast, llm: FakeLLM) -> None:
    fill(cast, cast.anna_scope)
    set_policy(cast.store, cast.anna_scope, active=False)
    work = consolidator(cast, llm)
    report = await work.consolidate(cast.anna_scope)
    assert (report.outcome, report.left) == ("paused", 4)
    assert await work.due([cast.anna_scope]) == []
    llm.script("consolidate", {"text": "A text."})
    assert (await work.consolidate(cast.anna_scope, force=True)).outcome == "written"


async def test_due_scopes_are_those_at_their_threshold(cast: Cast, llm: FakeLLM) -> None:
    fill(cast, cast.anna_scope, 4)
    fill(cast, cast.session_scope, 3)
    fill(cast, cast.agent_scope, 4)
    set_policy(cast.store, cast.agent_scope, consolidate_at=4)
    scopes = [cast.session_scope, cast.anna_scope, cast.bruno_scope, cast.agent_scope]
    assert await consolidator(cast, llm).due(scopes) == [cast.anna_scope, cast.agent_scope]


@pytest.mark.parametrize(
    "answer",
    [{"text": ""}, {"text": " \n\t"}, {"text": "VERSION: 2"}, NONSENSE, ProviderRateLimited],
)
async def test_known_failure_11_failure_leaves_text_and_buffer(
    cast: Cast, llm: FakeLLM, answer: Any
) -> None:
    """Known failure 11: a blank answer overwrote the text and absorbed the reflections."""
    consolidate(cast.store, cast.anna_scope, "What was.", expected_version=0)
    ids = fill(cast, cast.anna_scope)
    llm.script("consolidate", answer)
    report = await consolidator(cast, llm).consolidate(cast.anna_scope)
    assert (report.outcome, report.version, report.left) == ("failed", 1, 4)
    assert report.error
    assert report.after == report.before == text_of(cast, cast.anna_scope) == "What was."
    assert [reflection.id for reflection in cast.store.memory.pending(cast.anna_scope)] == ids


async def test_known_failure_37_a_text_over_its_limit_is_shortened_once(
    cast: Cast, llm: FakeLLM
) -> None:
    """Known failure 37: word limits live only in the prompt; Chinese text counts as one word."""
    fill(cast, cast.anna_scope)
    llm.script("consolidate", {"text": "记" * 361})
    llm.script("shorten", {"text": "记" * 360})
    report = await consolidator(cast, llm).consolidate(cast.anna_scope)
    assert (report.outcome, report.words, report.word_limit) == ("written", 360, 300)
    assert llm.tasks == ["consolidate", "shorten"]
    assert {request.key for request in llm.requests} == {"user/eve/anna/0"}
    assert [usage.task for usage in report.usage] == ["consolidate", "shorten"]
    assert "361 words" in llm.requests[1].user


@pytest.mark.parametrize("shortened", [{"text": "word " * 361}, {"text": ""}, NONSENSE])
async def test_a_text_still_too_long_is_a_failure(cast: Cast, llm: FakeLLM, shortened: Any) -> None:
    fill(cast, cast.anna_scope)
    llm.script("consolidate", {"text": "word " * 400})
    llm.script("shorten", shortened)
    report = await consolidator(cast, llm).consolidate(cast.anna_scope)
    assert (report.outcome, report.left) == ("failed", 4)
    assert report.usage[0].task == "consolidate"  # paid calls are reported
    assert text_of(cast, cast.anna_scope) == ""
    assert len(cast.store.memory.pending(cast.anna_scope)) == 4


async def test_a_dry_run_calls_the_model_and_writes_nothing(cast: Cast, llm: FakeLLM) -> None:
    consolidate(cast.store, cast.anna_scope, "What was.", expected_version=0)
    fill(cast, cast.anna_scope)
    llm.script("consolidate", {"text": "What would be."})
    report = await consolidator(cast, llm).consolidate(cast.anna_scope, dry_run=True)
    assert (report.outcome, report.version, report.absorbed) == ("dry_run", 2, 4)
    assert (report.before, report.after) == ("What was.", "What would be.")
    assert text_of(cast, cast.anna_scope) == "What was."
    assert len(cast.store.memory.pending(cast.anna_scope)) == 4


async def test_known_failure_15_the_slower_writer_retries(cast: Cast, llm: FakeLLM) -> None:
    """Known failure 15: a consolidation wrote without comparing the version."""
    ids = fill(cast, cast.anna_scope, 4)

    def meanwhile(_: object) -> dict[str, str]:
        consolidate(
            cast.store,
            cast.anna_scope,
            "By another worker.",
            expected_version=0,
            absorbed_ids=ids[:2],
        )
        return {"text": "Would erase the other's work."}

    llm.script("consolidate", [meanwhile, {"text": "Both."}])
    report = await consolidator(cast, llm).consolidate(cast.anna_scope, force=True)
    assert (report.outcome, report.version, report.absorbed) == ("written", 2, 2)
    assert report.before == "By another worker."
    assert text_of(cast, cast.anna_scope) == "Both."
    again = llm.requests[1]
    assert again.key == "user/eve/anna/1"
    assert "By another worker." in again.user
    assert "Reflection 1." not in again.user
    assert "Reflection 2." in again.user
    history = cast.store.history.versions("consolidation", "", scope=cast.anna_scope)
    assert [entry.content for entry in history] == ["By another worker.", "Both."]


async def test_work_done_by_another_writer_is_not_an_error(cast: Cast, llm: FakeLLM) -> None:
    ids = fill(cast, cast.anna_scope, 4)

    def meanwhile(_: object) -> dict[str, str]:
        consolidate(cast.store, cast.anna_scope, "Done.", expected_version=0, absorbed_ids=ids)
        return {"text": "Too late."}

    llm.script("consolidate", [meanwhile])
    report = await consolidator(cast, llm).consolidate(cast.anna_scope)
    assert (report.outcome, report.after) == ("nothing_pending", "Done.")
    assert len(report.usage) == 1


async def test_endless_conflicts_end(cast: Cast, llm: FakeLLM) -> None:
    fill(cast, cast.anna_scope, 4)
    version = 0

    def meanwhile(_: object) -> dict[str, str]:
        nonlocal version
        consolidate(cast.store, cast.anna_scope, f"Edit {version}.", expected_version=version)
        version += 1
        return {"text": "Too late."}

    llm.script("consolidate", meanwhile)
    work = consolidator(cast, llm, consolidation=ConsolidationSettings(conflict_retries=2))
    report = await work.consolidate(cast.anna_scope)
    assert (report.outcome, len(llm.requests)) == ("failed", 3)
    assert text_of(cast, cast.anna_scope) == "Edit 2."
    assert len(cast.store.memory.pending(cast.anna_scope)) == 4


async def test_known_failure_16_a_crash_before_the_write_changes_nothing(
    cast: Cast, llm: FakeLLM
) -> None:
    """Known failure 16: text and absorbed flags were written separately."""
    ids = fill(cast, cast.anna_scope)
    asked = asyncio.Event()

    def hang(_: object) -> Any:
        asked.set()
        return HANG

    llm.script("consolidate", hang)
    task = asyncio.create_task(consolidator(cast, llm).consolidate(cast.anna_scope))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert text_of(cast, cast.anna_scope) == ""
    pending = cast.store.memory.reflections((cast.anna_scope,), absorbed=False)
    assert {reflection.id for reflection in pending} == set(ids)


async def test_known_failure_10_a_long_buffer_is_consolidated_in_parts(
    cast: Cast, llm: FakeLLM
) -> None:
    """Known failure 10: only the first 100 of a buffer were read, the rest removed."""
    fill(cast, cast.anna_scope, 150)
    llm.script("consolidate", {"text": "A text."})
    work = consolidator(cast, llm, formation=FormationSettings(max_characters=1700))
    report = await work.consolidate(cast.anna_scope)
    assert report.outcome == "written"
    assert report.absorbed + report.left == 150
    assert 100 < report.absorbed < 150
    pending = cast.store.memory.pending(cast.anna_scope)
    assert [r.content for r in pending] == [
        f"Reflection {number}." for number in range(report.absorbed, 150)
    ]
    assert (await consolidator(cast, llm).consolidate(cast.anna_scope)).left == 0


async def test_a_failing_scope_does_not_stop_others(cast: Cast, llm: FakeLLM) -> None:
    scopes = [cast.anna_scope, cast.bruno_scope, cast.session_scope]
    for scope in scopes:
        fill(cast, scope)
    ghost = Scope.agent(new_id())

    def answer(request: Any) -> Any:
        return ProviderRateLimited("429") if "/bruno/" in request.key else {"text": "A text."}

    llm.script("consolidate", answer)
    reports = await consolidator(cast, llm).consolidate_many([*scopes, ghost, cast.anna_scope])
    assert [report.scope for report in reports] == [*scopes, ghost]
    assert [report.outcome for report in reports] == ["written", "failed", "written", "failed"]
    assert "unknown agent" in (reports[3].error or "")


async def test_scopes_are_consolidated_with_limited_concurrency(cast: Cast, llm: FakeLLM) -> None:
    scopes = [Scope.group(cast.eve.id, f"guild-{number}") for number in range(6)]
    for scope in scopes:
        fill(cast, scope, 1)
    two_asked = asyncio.Event()

    async def answer() -> dict[str, str]:
        if len(llm.requests) >= 2:
            two_asked.set()
        await two_asked.wait()  # the first call is answered only after the second one began
        return {"text": "A text."}

    llm.script("consolidate", lambda _: answer())
    work = consolidator(cast, llm, consolidation=ConsolidationSettings(concurrency=2))
    reports = await work.consolidate_many(scopes, force=True)
    assert {report.outcome for report in reports} == {"written"}
    assert llm.most_at_once == 2


async def test_only_an_outage_ends_the_work(cast: Cast, llm: FakeLLM) -> None:
    """Known failure 85: every scope was tried during an outage."""
    scopes = [Scope.group(cast.eve.id, f"guild-{number}") for number in range(7)]
    for scope in scopes:
        fill(cast, scope)
    work = consolidator(cast, llm, consolidation=ConsolidationSettings(concurrency=1))
    llm.script("consolidate", ProviderTimeout("no answer"))
    reports = await work.consolidate_many(scopes, force=True)
    assert [report.outcome for report in reports] == ["failed"] * 3 + ["not_tried"] * 4
    assert all(report.is_outage for report in reports[:3])
    assert len(llm.requests) == 3
    llm.script("consolidate", NONSENSE)
    reports = await work.consolidate_many(scopes, force=True)
    assert {(report.outcome, report.is_outage) for report in reports} == {("failed", False)}


async def test_an_overflow_has_a_hint(cast: Cast, llm: FakeLLM) -> None:
    fill(cast, cast.anna_scope)
    llm.script("consolidate", ContextOverflow("too long", hint="raise num_ctx"))
    report = await consolidator(cast, llm).consolidate(cast.anna_scope, force=True)
    assert report.error == "too long (raise num_ctx; lower the scope's word limit)"


async def test_a_missing_model_is_an_error(cast: Cast) -> None:
    fill(cast, cast.anna_scope)
    with pytest.raises(ConfigError, match="no language model is configured") as caught:
        await consolidator(cast, None).consolidate_many([cast.anna_scope])
    assert "OPENAI_API_KEY" in (caught.value.hint or "")
    report = await consolidator(cast, None).consolidate(cast.session_scope)
    assert report.outcome == "nothing_pending"
