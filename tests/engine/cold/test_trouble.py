"""Failures during a cold run lose nothing, block no other session, and are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edenmem.engine.cold.report import ColdReport
from edenmem.engine.reports import FormationReport
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    EdenmemError,
    EmbeddingModelMismatch,
    InputError,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    ProviderRateLimited,
    ProviderTimeout,
    ReplayMiss,
    StoreError,
)
from edenmem.models.formation import CallUsage, FormationStatus
from tests.engine.cold.conftest import (
    ADAM,
    EVE,
    ON_EACH_STORE,
    Quiet,
    fact_of,
    hang_until_time_is_up,
    no_clock,
)
from tests.support.formations import Steps
from tests.support.interposed import InterposedStore
from tests.support.llm import NONSENSE

pytestmark = pytest.mark.slow


def answers(**by_session: Any) -> Callable[[Any], Any]:
    """Answer with these facts for these sessions; with the default for others."""

    def answer(request: Any) -> Any:
        return by_session.get(request.key.split("/")[0], fact_of)

    return answer


class Hanging:
    """A model that never answers; ``asked`` is set after a number of calls."""

    def __init__(self, times: int = 1) -> None:
        self.asked = asyncio.Event()
        self._left = times

    async def __call__(self, request: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self.asked.set()
        await asyncio.Event().wait()


def server_error() -> ProviderError:
    error = ProviderError("the endpoint answered 503")
    error.retryable = True
    return error


# -- several runs at once ------------------------------------------------------------------------


@ON_EACH_STORE
async def test_concurrent_runs_form_nothing_twice(quiet: Quiet) -> None:
    sessions = [quiet.add(f"s{number}", 6, agents=[EVE, ADAM]) for number in range(6)]
    reports = await asyncio.gather(*(quiet.run() for _ in range(4)))
    assert sum(report.formed for report in reports) == 12
    assert [report.failed for report in reports] == [()] * 4
    assert len(quiet.llm.requests_for("facts")) == 12
    quiet.check(sessions)


async def test_a_second_run_counts_taken_sessions_and_continues(quiet: Quiet) -> None:
    quiet.add("slow", days=9)
    other = quiet.add("other")
    hanging = Hanging()
    quiet.llm.script("facts", answers(slow=hanging))
    stop = asyncio.Event()
    first = asyncio.create_task(quiet.run(stop=stop, limit=1, cold={"concurrency": 1}))
    await hanging.asked.wait()
    second = await quiet.run()
    assert (second.taken, second.formed, second.failed) == (1, 1, ())
    quiet.check([other])
    stop.set()
    report = await first
    assert (report.stopped_early, report.given_back) == ("interrupted", ("slow",))


# -- time limits and stopping ---------------------------------------------------------------------


@ON_EACH_STORE
async def test_known_failure_13_a_time_limit_loses_nothing(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_clock(monkeypatch)
    slow, other = quiet.add("slow", days=9), quiet.add("other")
    quiet.llm.script("facts", answers(slow=hang_until_time_is_up))
    report = await quiet.run()
    assert (report.timed_out, report.formed, report.failed) == (("slow",), 1, ())
    [given_back] = quiet.formations(FormationStatus.RELEASED)
    assert (given_back.attempts, given_back.worker, given_back.lease_until) == (0, None, None)
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 1
    quiet.check([slow, other])


async def test_a_timeout_of_one_range_counts_as_an_attempt(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if models answer other sessions; the cost of the cancelled call is recorded."""
    no_clock(monkeypatch)
    quiet.add("slow", days=9)
    lost = CallUsage(task="facts", model="m", input_tokens=7, output_tokens=3, estimated=True)

    async def hang(request: Any) -> Any:
        request.spent.append(lost)
        await hang_until_time_is_up()

    quiet.llm.script("facts", hang)
    quiet.llm.script("doctor", {"ok": True})
    attempts = []
    for _ in range(3):
        assert (await quiet.run()).timed_out == ("slow",)
        attempts.append(quiet.formations()[0].attempts)
        assert (await quiet.run()).timed_out == ()  # it waits, or is over
        quiet.clock.advance(hours=1)
    assert attempts == [1, 2, 3]
    [kept] = quiet.formations(FormationStatus.FAILED)
    assert "cold.session_timeout_seconds" in (kept.error or "")
    assert [call for call in kept.usage if call.task == "facts"] == [lost] * 3


async def test_a_hanging_agent_takes_no_time_from_another(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = quiet.add("both", agents=[EVE, ADAM])
    adam_is_done = asyncio.Event()

    async def facts(request: Any) -> Any:
        if "/eve/" not in request.key:
            return fact_of
        await adam_is_done.wait()
        return hang_until_time_is_up

    def told(report: ColdReport, reports: Sequence[FormationReport]) -> None:
        add_formations(report, reports)
        adam_is_done.set()

    no_clock(monkeypatch)
    add_formations = ColdReport.add_formations
    monkeypatch.setattr(ColdReport, "add_formations", told)
    quiet.llm.script("facts", facts)
    report = await quiet.run()
    assert (report.timed_out, report.formed) == (("both",), 1)
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 1
    quiet.check([session])


@ON_EACH_STORE
async def test_a_stopped_run_releases_its_sessions(quiet: Quiet) -> None:
    sessions = [quiet.add(f"s{number}", days=9 - number) for number in range(6)]
    hanging = Hanging(2)
    quiet.llm.script("facts", hanging)
    stop = asyncio.Event()
    running = asyncio.create_task(quiet.run(stop=stop))
    await hanging.asked.wait()
    stop.set()
    report = await running
    assert (report.stopped_early, report.formed) == ("interrupted", 0)
    assert sorted(report.given_back) == ["s0", "s1"]
    released = quiet.formations()
    assert [(each.status, each.attempts) for each in released] == [
        (FormationStatus.RELEASED, 0)
    ] * 2
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 6
    quiet.check(sessions)


async def test_a_stopped_run_finishes_within_the_grace_period(quiet: Quiet) -> None:
    session = quiet.add("nearly")
    asked, answer = asyncio.Event(), asyncio.Event()

    async def facts(request: Any) -> Any:
        asked.set()
        await answer.wait()
        return fact_of(request)

    quiet.llm.script("facts", facts)
    stop = asyncio.Event()
    running = asyncio.create_task(quiet.run(stop=stop, cold={"grace_seconds": 60}))
    await asked.wait()
    stop.set()
    await asyncio.sleep(0)
    answer.set()
    report = await running
    assert (report.stopped_early, report.formed, report.given_back) == ("interrupted", 1, ())
    quiet.check([session])


@ON_EACH_STORE
async def test_a_cancelled_run_releases_everything(quiet: Quiet) -> None:
    session = quiet.add("slow")
    hanging = Hanging()
    quiet.llm.script("facts", hanging)
    running = asyncio.create_task(quiet.run())
    await hanging.asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 1
    quiet.check([session])


# -- providers that are down ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure", [ProviderRateLimited("429"), ProviderTimeout("no answer"), server_error()], ids=str
)
async def test_an_outage_ends_the_run_without_counting_attempts(
    quiet: Quiet, failure: ProviderError
) -> None:
    sessions = [quiet.add(f"s{number}") for number in range(12)]
    quiet.llm.script("facts", failure)
    for _ in range(4):  # more often than a range may fail
        report = await quiet.run(cold={"concurrency": 1})
        assert (report.stopped_early, report.reason) == ("provider", failure.message)
        assert len(report.failed) == 3
        assert all(each.attempts == 0 and not each.final for each in report.failed)
    assert {each.attempts for each in quiet.formations()} == {0}
    assert quiet.formations(FormationStatus.FAILED) == []
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 12
    quiet.check(sessions)


async def test_one_session_is_enough_to_report_an_outage(quiet: Quiet) -> None:
    """Known failure 85: the exit code was 1, as for a failed session."""
    quiet.add("alone")
    quiet.llm.script("facts", ProviderTimeout("no answer"))
    report = await quiet.run()
    assert (report.stopped_early, report.reason) == ("provider", "no answer")
    assert len(report.failed) == 1
    quiet.llm.script("facts", fact_of)
    report = await quiet.run()
    assert (report.stopped_early, report.formed) == (None, 1)


@pytest.mark.parametrize(
    ("error", "stopped", "asked", "failed"),
    [
        (ProviderAuthError("401", hint="check the key"), "provider", 1, 0),
        (ProviderMisconfigured("404", hint="check llm.fast_model"), "configuration", 3, 3),
    ],
)
async def test_a_wrong_key_or_model_ends_the_run_without_counting_attempts(
    quiet: Quiet, error: ProviderError, stopped: str, asked: int, failed: int
) -> None:
    for number in range(5):
        quiet.add(f"s{number}")
    quiet.llm.script("facts", error)
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.stopped_early, report.hint) == (stopped, error.hint)
    assert (len(quiet.llm.requests), len(report.failed)) == (asked, failed)
    assert {each.attempts for each in quiet.formations()} == {0}
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 5


async def test_a_missing_model_configuration_is_reported(quiet: Quiet) -> None:
    quiet.add("session")
    report = await quiet.run(llm=None)
    assert report.stopped_early == "configuration"
    assert quiet.formations() == []


async def test_vectors_of_another_model_end_the_run(quiet: Quiet) -> None:
    for number in range(6):
        quiet.add(f"s{number}")
    mismatch = EmbeddingModelMismatch(stored="a", current="b")
    quiet.embedder.failures = [mismatch] * 3
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.stopped_early, report.hint) == ("configuration", mismatch.hint)
    assert len(report.failed) == 3
    assert (await quiet.run()).formed == 6


async def test_vectors_of_another_model_for_one_agent_do_not_stop_others(quiet: Quiet) -> None:
    quiet.add("bad", days=9)
    for number in range(3):
        quiet.add(f"s{number}")
    quiet.embedder.failures = [EmbeddingModelMismatch(stored="a", current="b")]
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.formed, len(report.failed), report.stopped_early) == (3, 1, None)


async def test_one_failure_among_successes_is_not_an_outage(quiet: Quiet) -> None:
    for number in range(12):
        quiet.add(f"s{number:02}", days=20 - number)
    bad = {f"s{number:02}": ProviderTimeout("no answer") for number in range(0, 12, 2)}
    quiet.llm.script("facts", answers(**bad))
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.formed, len(report.failed), report.stopped_early) == (6, 6, None)


@ON_EACH_STORE
async def test_failing_sessions_do_not_starve_others(quiet: Quiet) -> None:
    """Every call for the three oldest sessions fails: they come last."""
    for number in range(3):
        quiet.add(f"bad{number}", days=100 + number)
    failing = answers(**{f"bad{number}": ProviderTimeout("no answer") for number in range(3)})
    quiet.llm.script("facts", failing)
    good = [quiet.add(f"good{number}") for number in range(5)]
    first = await quiet.run(cold={"concurrency": 1})
    assert (first.stopped_early, first.formed) == ("provider", 0)
    for _ in range(2):
        second = await quiet.run(cold={"concurrency": 1})
    quiet.check(good)
    assert second.stopped_early == "provider"
    assert {each.session for each in second.failed} == {"bad0", "bad1", "bad2"}


# -- the budget -----------------------------------------------------------------------------------


async def test_the_budget_ends_the_run(quiet: Quiet) -> None:
    sessions = [quiet.add(f"s{number}", days=9 - number) for number in range(5)]
    spent = BudgetExceeded("the run's limit of 100 tokens is reached")
    quiet.llm.script("facts", [fact_of, fact_of, spent])
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.stopped_early, report.formed, report.failed) == ("budget", 2, ())
    assert report.reason == spent.message
    assert (await quiet.run()).formed == 3
    quiet.check(sessions)
    assert {each.attempts for each in quiet.formations()} == {0}


# -- sessions that fail ---------------------------------------------------------------------------


@ON_EACH_STORE
async def test_known_failure_12_failed_ranges_are_listed_and_retried(quiet: Quiet) -> None:
    bad, good = quiet.add("bad", days=9), quiet.add("good")
    quiet.llm.script("facts", answers(bad=NONSENSE))
    attempts, final = [], []
    for _ in range(3):
        report = await quiet.run()
        [failure] = report.failed
        attempts.append(failure.attempts)
        final.append(failure.final)
        assert (failure.session, failure.agent_id) == ("bad", EVE.id)
        assert failure.reason
        again = await quiet.run()
        assert (again.failed, again.waiting) == ((), 0 if failure.final else 1)
        quiet.clock.advance(hours=1)
    assert (attempts, final) == ([1, 2, 3], [False, False, True])
    quiet.check([good])

    assert [(await quiet.run()).considered for _ in range(2)][-1] == 0
    [kept] = quiet.formations(FormationStatus.FAILED)
    assert kept.error
    assert Steps(quiet.store).retry(kept.id, now=quiet.clock())
    quiet.llm.script("facts", fact_of)
    assert (await quiet.run()).formed == 1
    quiet.check([bad, good])


@pytest.mark.parametrize("error", [ReplayMiss("no such answer"), ValueError("a bug")], ids=repr)
async def test_a_failed_session_does_not_stop_others(quiet: Quiet, error: Exception) -> None:
    quiet.add("bad", days=9)
    good = [quiet.add(f"s{number}") for number in range(4)]
    quiet.llm.script("facts", answers(bad=error))
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.formed, report.stopped_early) == (4, None)
    [failure] = report.failed
    assert failure.session == "bad"
    assert str(error.args[0]) in failure.reason
    quiet.check(good)


# -- the database ---------------------------------------------------------------------------------


class Broken(InterposedStore):
    """A store with one failing method."""

    def __init__(self, store: Any, name: str) -> None:
        super().__init__(store)
        self._name = name

    def wrap(self, name: str, method: Any) -> Any:
        return self._fail if name == self._name else method

    def _fail(self, *args: Any, **options: Any) -> Any:
        raise StoreError("the database is gone", hint="start it")


@pytest.mark.parametrize("name", ["backlog", "claim", "move", "apply_formation", "session"])
async def test_an_unreachable_database_ends_the_run(quiet: Quiet, name: str) -> None:
    sessions = [quiet.add(f"s{number}") for number in range(6)]
    whole, quiet.store = quiet.store, Broken(quiet.store, name)
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.stopped_early, report.hint, report.formed) == ("database", "start it", 0)
    assert len(report.failed) == 3
    quiet.store = whole
    quiet.clock.advance(hours=1)  # leases that could not be released expire
    last = await quiet.run()
    assert last.formed + last.completed == 6
    quiet.check(sessions)
    assert quiet.llm.requests_for("facts")


async def test_a_database_failure_between_pages_is_reported(quiet: Quiet) -> None:
    class FailingLate(Broken):
        def _fail(self, *args: Any, **options: Any) -> Any:
            raise StoreError("the database is gone")
            yield

    quiet.add("session")
    quiet.store = FailingLate(quiet.store, "quiet_sessions")
    assert (await quiet.run()).stopped_early == "database"


@pytest.mark.parametrize("error", [ConfigError, InputError])
async def test_a_wrong_setting_does_not_count_as_an_attempt(
    quiet: Quiet, error: type[EdenmemError]
) -> None:
    session = quiet.add("session")
    quiet.llm.script("facts", [error("llm.prices has no price of it")])
    report = await quiet.run()
    assert (report.stopped_early, report.failed) == ("configuration", ())
    assert (await quiet.run()).formed == 1
    quiet.check([session])
