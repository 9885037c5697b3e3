"""Claims: who works, who waits, and what happens to work that does not end well."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from edenmem.engine.formation.claims import Claims, LeaseLost, choose_range, worker_id
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    EdenmemError,
    InputError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    ProviderRateLimited,
    ProviderTimeout,
    ReplayMiss,
    StoreError,
)
from edenmem.models.formation import Formation, FormationStatus, Trigger
from edenmem.settings.schema import FormationSettings
from tests.engine.formation.conftest import World, facts, reflections
from tests.support.builders import NOW, make_formation, make_message, make_session
from tests.support.formations import Steps
from tests.support.interposed import InterposedStore
from tests.support.llm import NONSENSE, FakeLLM

pytestmark = pytest.mark.slow

LISBON = "Anna Duarte lives in Lisbon."
MOVES = "Anna Duarte settled down."


def hang(begun: asyncio.Event) -> Any:
    """A script that says when it is asked, and never answers."""

    async def never(request: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    return never


# -- ranges --------------------------------------------------------------------------------------


def test_a_range_has_one_message_however_long_it_is() -> None:
    session = make_session()
    settings = FormationSettings(max_characters=10)
    messages = [make_message(session, "x" * 1000), make_message(session, "y")]
    assert choose_range(messages, settings) == tuple(messages[:1])
    assert choose_range([], settings) == ()


def test_workers_are_never_namesakes() -> None:
    assert worker_id() != worker_id()


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NONSENSE, ProviderAnswerInvalid, ProviderError])
@pytest.mark.parametrize("task", ["facts", "reflections"])
async def test_a_failed_try_is_counted_and_made_again_later(
    world: World, error: Any, task: str
) -> None:
    """Known failure 12: the error is reported, and the messages wait."""
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    world.llm.script(task, [error])
    report = await world.form_one()
    assert report.outcome == "waiting"
    assert report.error
    assert report.not_before is not None
    pause = (report.not_before - world.clock()).total_seconds()
    assert 45 <= pause <= 75
    formation = world.formation(FormationStatus.RELEASED)
    assert (formation.attempts, formation.not_before) == (1, report.not_before)
    assert formation.error == report.error

    again = await world.form_one(trigger=Trigger.COLD)
    assert (again.outcome, again.not_before) == ("waiting", report.not_before)
    assert len(world.llm.requests) == (1 if task == "facts" else 2)

    world.clock.advance(seconds=75)
    world.llm.script("reflections", reflections(user=[MOVES]))
    done = await world.form_one()
    assert done.outcome == "applied"
    assert done.formation_id == report.formation_id
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert world.pending(world.cast.anna_scope) == [MOVES]
    assert len(world.llm.requests_for("facts")) == (2 if task == "facts" else 1)


async def test_after_the_last_try_a_range_is_kept_as_failed_and_retried_by_hand(
    world: World,
) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", NONSENSE)
    outcomes = []
    for _ in range(3):
        report = await world.form_one()
        outcomes.append(report.outcome)
        world.clock.advance(hours=1)
    assert outcomes == ["waiting", "waiting", "failed"]
    formation = world.formation(FormationStatus.FAILED)
    assert formation.attempts == 3
    assert formation.error

    world.llm.script("facts", facts("Anna Duarte has a boat."))
    world.say("I have a boat.")  # what comes later is not held up
    later = await world.form_one()
    assert (later.outcome, later.messages) == ("applied", 1)

    assert Steps(world.store).retry(formation.id, now=world.clock())
    world.llm.script("facts", facts(LISBON))
    retried = await world.form_one()
    assert (retried.outcome, retried.formation_id) == ("applied", formation.id)
    assert world.contents(world.cast.anna_scope) == ["Anna Duarte has a boat.", LISBON]


@pytest.mark.parametrize(
    "error",
    [
        ProviderAuthError,
        ProviderMisconfigured,
        ProviderRateLimited,
        ProviderTimeout,
        ReplayMiss,
        BudgetExceeded,
        ConfigError,
        InputError,
    ],
)
async def test_what_no_message_is_to_blame_for_counts_as_no_try(
    world: World, error: type[EdenmemError]
) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", [error] * 5)
    for _ in range(5):
        with pytest.raises(error, match="scripted failure"):
            await world.form()
    formation = world.formation(FormationStatus.RELEASED)
    assert (formation.attempts, formation.not_before) == (0, None)
    assert formation.error == "scripted failure"
    assert (await world.form_one()).outcome == "applied"


async def test_a_person_waits_for_no_pause(world: World) -> None:
    first = await world.learn("I live in Lisbon.", facts=[NONSENSE])
    assert first.not_before is not None
    again = await world.form_one(trigger=Trigger.FORCED)
    assert (again.outcome, again.formation_id) == ("applied", first.formation_id)


async def test_what_was_paid_for_a_failed_try_is_on_record(world: World) -> None:
    report = await world.learn("I live in Lisbon.", reflections=[NONSENSE])
    assert [call.task for call in report.usage] == ["facts"]
    assert world.formation(FormationStatus.RELEASED).usage == report.usage


async def test_an_error_of_our_own_is_told_and_ends_like_any_other(world: World) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", RuntimeError("a bug"))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="a bug"):
            await world.form()
        world.clock.advance(hours=1)
    assert world.formation(FormationStatus.FAILED).error == "RuntimeError: a bug"


# -- cancelling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["facts", "reflections"])
async def test_a_cancelled_range_is_given_back_whole(world: World, task: str) -> None:
    """Known failure 13: by a time limit or Ctrl-C, at any point of the work."""
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    begun = asyncio.Event()
    world.llm.script(task, [hang(begun)])
    running = asyncio.create_task(world.form())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    formation = world.formation(FormationStatus.RELEASED)
    assert (formation.attempts, formation.not_before) == (0, None)
    assert world.contents(world.cast.anna_scope) == ([] if task == "facts" else [LISBON])
    assert (await world.form_one()).outcome == "applied"
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert len(world.llm.requests) == 3


async def test_a_time_limit_is_a_time_limit(world: World) -> None:
    """Known failure 13."""
    world.say("I live in Lisbon.")
    limit = asyncio.timeout(None)

    async def hang(request: object) -> None:
        limit.reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    world.llm.script("facts", [hang])
    with pytest.raises(TimeoutError):
        async with limit:
            await world.form()
    assert world.formation(FormationStatus.RELEASED).attempts == 0


class Slow(InterposedStore):
    """A store of which one method lets the test act once it has done its work."""

    def __init__(self, store: Any, method: str, act: Any) -> None:
        super().__init__(store)
        self._method, self._act = method, act

    def wrap(self, name: str, method: Any) -> Any:
        if name != self._method:
            return method

        def acting(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            self._act()
            return result

        return acting


@pytest.mark.parametrize("method", ["claim", "move", "apply_formation"])
async def test_cancelled_in_the_middle_of_a_write_nothing_is_lost_or_done_twice(
    world: World, method: str
) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    loop = asyncio.get_running_loop()
    running: asyncio.Task[Any] | None = None

    def cancel() -> None:
        assert running is not None
        asyncio.run_coroutine_threadsafe(_cancel(running), loop).result()

    running = asyncio.create_task(world.form(store=Slow(world.store, method, cancel)))
    with pytest.raises(asyncio.CancelledError):
        await running
    # What is recorded is applied in the same breath, so that only the other step is left.
    assert world.llm.tasks == ([] if method == "claim" else ["facts"])
    reports = await world.form()
    assert reports[-1].outcome == "applied"
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert world.llm.tasks == ["facts", "reflections"]


class Cancelling(InterposedStore):
    """A store that has a task cancelled during the call with a given number."""

    def __init__(self, store: Any, number: int, cancel: Any) -> None:
        super().__init__(store)
        self._left, self._cancel = number, cancel

    def wrap(self, name: str, method: Any) -> Any:
        def calling(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            self._left -= 1
            if self._left == 0:
                self._cancel()
            return result

        return calling


async def test_cancelled_during_any_call_of_the_store_no_claim_stays(world: World) -> None:
    """Known failure 13: what was claimed is given back, wherever the work was."""
    loop = asyncio.get_running_loop()
    for number in range(1, 100):
        said = f"Fact {number} is that I live in Lisbon."
        world.say(said)
        world.llm.script("facts", facts(LISBON))
        running: asyncio.Task[Any] | None = None

        def cancel() -> None:
            assert running is not None  # noqa: B023
            asyncio.run_coroutine_threadsafe(_cancel(running), loop).result()  # noqa: B023

        store = Cancelling(world.store, number, cancel)
        running = asyncio.create_task(world.form(store=store))
        await asyncio.wait([running])
        assert FormationStatus.CLAIMED not in {each.status for each in world.formations()}, number
        if not running.cancelled():
            break
        await world.form()
    assert number > 10


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


# -- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["facts", "reflections"])
async def test_a_crash_between_record_and_apply_is_mended_without_a_model(
    world: World, step: str
) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    world.llm.script("reflections", reflections(user=[MOVES]))
    applications = iter([1] if step == "facts" else [0, 1])

    class Crashing(InterposedStore):
        def wrap(self, name: str, method: Any) -> Any:
            def crash_at_last(*args: Any, **kwargs: Any) -> Any:
                if next(applications):
                    raise StoreError("the machine lost power")
                return method(*args, **kwargs)

            return crash_at_last if name == "apply_formation" else method

    with pytest.raises(StoreError):
        await world.form(store=Crashing(world.store))
    recorded = world.formation(FormationStatus.RECORDED)
    assert world.contents(world.cast.anna_scope) == ([] if step == "facts" else [LISBON])

    shown = await world.form_one(worker="worker-2", llm=None, dry_run=True)
    assert shown.changes is not None
    assert world.formation(FormationStatus.RECORDED) == recorded

    if step == "facts":
        with pytest.raises(ConfigError):  # the reflections are still to be asked for
            await world.form(worker="worker-2", llm=None)
        assert world.formation(FormationStatus.RELEASED).next_step == "reflections"
        assert world.contents(world.cast.anna_scope) == [LISBON]
        report = await world.form_one(worker="worker-2")
        assert (report.outcome, report.formation_id) == ("applied", recorded.id)
    else:
        report = (await world.form(worker="worker-2", llm=None))[0]
        assert (report.outcome, report.formation_id) == ("resumed", recorded.id)
        assert report.facts_added == 0
    assert report.reflections == {"user": 1}
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert world.pending(world.cast.anna_scope) == [MOVES]
    assert world.formation(FormationStatus.APPLIED).id == recorded.id
    assert world.llm.tasks == ["facts", "reflections"]


async def test_facts_that_a_dead_worker_recorded_count_for_the_next(world: World) -> None:
    """The next worker applies them, continues with the reflections, and reports both."""
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    world.llm.script("reflections", reflections(user=[MOVES]))

    def crash() -> None:
        raise StoreError("the machine lost power")

    with pytest.raises(StoreError):
        await world.form(store=Slow(world.store, "move", crash))
    assert world.contents(world.cast.anna_scope) == []
    report = await world.form_one(worker="worker-2")
    assert (report.outcome, report.messages) == ("applied", 1)
    assert (report.facts_added, report.reflections) == (1, {"user": 1})
    assert world.llm.tasks == ["facts", "reflections"]


async def test_a_worker_whose_record_another_applied_leaves_the_rest_to_it(world: World) -> None:
    """Known failure 14: one of them asks for the reflections."""
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    world.llm.script("reflections", reflections(user=[MOVES]))
    meanwhile = iter([True])

    class Overtaken(InterposedStore):
        def wrap(self, name: str, method: Any) -> Any:
            def apply(*args: Any, **kwargs: Any) -> Any:
                if next(meanwhile, False):
                    [report] = asyncio.run(world.form(worker="worker-2"))
                    assert (report.outcome, report.facts_added) == ("applied", 1)
                return method(*args, **kwargs)

            return apply if name == "apply_formation" else method

    report = await world.form_one(store=Overtaken(world.store))
    assert report.outcome == "taken"
    assert world.llm.tasks == ["facts", "reflections"]
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert world.pending(world.cast.anna_scope) == [MOVES]


async def test_after_the_last_try_of_reflections_the_facts_are_in_memory(world: World) -> None:
    """Known failure 69."""
    world.say("I live in Lisbon.")
    world.llm.script("facts", [NONSENSE, facts(LISBON)])
    world.llm.script("reflections", [NONSENSE] * 3)
    outcomes, added = [], []
    for _ in range(4):
        report = await world.form_one()
        outcomes.append(report.outcome)
        added.append(report.facts_added)
        world.clock.advance(hours=1)
    assert outcomes == ["waiting", "waiting", "waiting", "failed"]  # each step has its tries
    assert added == [0, 1, 0, 0]
    failed = world.formation(FormationStatus.FAILED)
    assert (failed.attempts, failed.next_step) == (3, "reflections")
    assert failed.error is not None
    assert failed.error.startswith("reflections: ")
    assert failed.counts["facts"] == 1
    assert world.contents(world.cast.anna_scope) == [LISBON]

    assert Steps(world.store).retry(failed.id, now=world.clock())
    asked = len(world.llm.requests)
    world.llm.script("reflections", reflections(user=[MOVES, LISBON]))
    done = await world.form_one()
    assert (done.outcome, done.facts_added, done.reflections) == ("applied", 0, {"user": 1})
    [request] = world.llm.requests[asked:]
    assert request.task == "reflections"
    assert LISBON in request.user
    applied_one = world.formation(FormationStatus.APPLIED)
    assert (applied_one.next_step, applied_one.counts["facts"]) == ("", 1)
    assert [each.action for each in applied_one.decisions] == ["ADD", "REJECTED"]
    assert [call.task for call in applied_one.usage] == ["facts", "embed", "reflections"]


async def test_a_step_that_is_left_is_shown_by_a_dry_run(world: World) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", [facts(LISBON)])
    world.llm.script("reflections", [NONSENSE])
    await world.form()
    before = world.formation(FormationStatus.RELEASED)
    world.llm.script("reflections", reflections(user=[MOVES]))
    shown = await world.form_one(dry_run=True)
    assert shown.changes is not None
    assert [type(change).__name__ for change in shown.changes.changes] == ["AddReflection"]
    assert world.formation(FormationStatus.RELEASED) == before


async def test_a_dead_workers_claim_is_taken_over_when_its_lease_has_run_out(world: World) -> None:
    messages = world.say("I live in Lisbon.")
    dead = make_formation(world.cast.session, messages, worker="dead", now=world.clock())
    assert world.store.formations.claim(dead)
    world.llm.script("facts", facts(LISBON))
    assert (await world.form_one()).outcome == "taken"
    world.clock.advance(minutes=5, seconds=1)
    report = await world.form_one()
    assert (report.outcome, report.formation_id) == ("applied", dead.id)
    assert world.contents(world.cast.anna_scope) == [LISBON]


# -- several workers -----------------------------------------------------------------------------


async def test_two_workers_never_form_the_same_messages(world: World) -> None:
    """Known failure 14."""
    world.say("I live in Lisbon.")
    world.llm.script("facts", facts(LISBON))
    world.llm.script("reflections", {**_session_reflection("Anna moved.")})
    reports = await asyncio.gather(*(world.form(worker=f"worker-{number}") for number in range(4)))
    outcomes = sorted(report.outcome for each in reports for report in each)
    assert outcomes.count("applied") == 1
    assert set(outcomes) <= {"applied", "taken", "not_due", "resumed"}
    assert world.contents(world.cast.anna_scope) == [LISBON]
    assert world.pending(world.cast.session_scope) == ["Anna moved."]
    assert len(world.llm.requests_for("facts")) == 1


def _session_reflection(content: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"agent": [], "shards": [], "group": [], "user": []}
    return {**empty, "session": [{"content": content, "private": False}]}


async def test_a_worker_that_lost_its_lease_writes_nothing(world: World) -> None:
    world.say("I live in Lisbon.")

    def overtaken(request: Any) -> Any:
        """While the model thinks, the lease runs out and another worker takes the claim."""
        [formation] = world.formations()
        now = world.clock.advance(hours=1)
        assert Steps(world.store).claim(
            formation.id, worker="worker-2", now=now, lease_until=now.replace(hour=23)
        )
        return facts("Written too late.")

    world.llm.script("facts", overtaken)
    report = await world.form_one()
    assert report.outcome == "taken"
    assert world.contents(world.cast.anna_scope) == []
    assert world.formation(FormationStatus.CLAIMED).worker == "worker-2"


async def test_a_worker_that_lost_its_lease_stops_asking(world: World) -> None:
    world.say("I live in Lisbon.")

    async def overtaken(request: Any) -> None:
        [formation] = world.formations()
        now = world.clock.advance(hours=1)
        assert Steps(world.store).claim(
            formation.id, worker="worker-2", now=now, lease_until=now.replace(hour=23)
        )
        await asyncio.Event().wait()

    world.llm.script("facts", overtaken)
    report = await world.form_one(lease_seconds=0.003)
    assert report.outcome == "taken"
    assert world.formation(FormationStatus.CLAIMED).worker == "worker-2"


class Leases:
    """A store that only renews leases, ``most`` times, and calls ``at_last`` at the last."""

    def __init__(self, most: int, at_last: Callable[[], object] = int) -> None:
        self.most = most
        self.renewed = 0
        self.at_last = at_last
        self.formations = self

    def formation(self, formation_id: str) -> None:
        return None

    def move(self, before: Formation, after: Formation) -> bool:
        self.renewed += 1
        if self.renewed == self.most:
            self.at_last()
        return self.renewed <= self.most


def leasing(leases: Leases) -> Claims:
    settings = FormationSettings(lease_seconds=0.003)
    return Claims(leases, settings, lambda: NOW, worker="worker-1")  # type: ignore[arg-type]


async def test_a_lease_is_renewed_as_long_as_the_work_takes() -> None:
    loop, enough = asyncio.get_running_loop(), asyncio.Event()
    leases = Leases(5, at_last=lambda: loop.call_soon_threadsafe(enough.set))

    async def work() -> str:
        await enough.wait()
        return "done"

    session = make_session()
    formation = make_formation(session, [make_message(session)])
    assert await leasing(leases).keep(formation, work()) == "done"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_work_stops_when_the_lease_is_lost() -> None:
    claims = leasing(Leases(2))
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    session = make_session()
    with pytest.raises(LeaseLost):
        await claims.keep(make_formation(session, [make_message(session)]), work())
    assert stopped.is_set()


async def test_a_store_that_is_gone_does_not_hide_the_first_error(world: World) -> None:
    world.say("I live in Lisbon.")

    steps = itertools.count(1)

    class Gone(Slow):
        def wrap(self, name: str, method: Any) -> Any:
            if name == "move":  # to record, and then to release
                raise StoreError(f"gone at step {next(steps)}")
            return method

    with pytest.raises(StoreError, match="gone at step 1"):
        await world.form(store=Gone(world.store, "", None))
    assert next(steps) == 3
    world.clock.advance(hours=1)
    assert (await world.form_one()).outcome == "applied"


async def test_a_threshold_does_not_hold_up_what_was_begun(world: World) -> None:
    world.say("I live in Lisbon.")
    world.llm.script("facts", [ProviderAuthError("no key")])
    with pytest.raises(ProviderAuthError):
        await world.form()
    report = await world.form_one(trigger=Trigger.THRESHOLD, llm=FakeLLM(_nothing()))
    assert report.outcome == "applied"


def _nothing() -> dict[str, Any]:
    return {"facts": facts(), "reflections": {**_session_reflection("x"), "session": []}}


# -- clocks --------------------------------------------------------------------------------------


async def test_a_session_goes_on_although_the_clock_was_set_back(world: World) -> None:
    """The number of the next formation must not hang on which one has the latest time: it would
    be given twice, refused, and asked for again for ever."""
    outcomes = []
    for content in ("I live in Lisbon.", "I have a boat.", "It is a small one."):
        world.say(content)
        outcomes.append((await world.form_one()).outcome)
        world.clock.advance(hours=-1)
    assert outcomes == ["applied"] * 3
    assert sorted(each.seq for each in world.formations()) == [1, 2, 3]
