"""Selection and report of cold runs."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from edenmem.engine.cold.report import ColdReport
from edenmem.engine.reports import ConsolidationReport
from edenmem.models.changes import AddReflection, HoldItem
from edenmem.models.formation import FormationStatus
from edenmem.models.host import Session
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings, ReviewSettings
from edenmem.store.mongo import MongoStore
from edenmem.store.sqlite import SqliteStore
from tests.engine.cold.conftest import ADAM, ANNA, EVE, ON_EACH_STORE, Quiet, make_quiet
from tests.support.builders import (
    NOW,
    ago,
    change_set,
    make_formation,
    make_held,
    make_message,
    make_reflection,
)
from tests.support.embedder import FakeEmbedder
from tests.support.formations import Steps
from tests.support.llm import FakeLLM
from tests.support.memory import facts_of


@ON_EACH_STORE
async def test_quiet_sessions_are_formed(quiet: Quiet) -> None:
    long, short = quiet.add("long", 9), quiet.add("short", 3)
    report = await quiet.run()
    assert (report.considered, report.formed, report.messages) == (2, 1, 9)
    assert (report.facts_added, report.not_due, report.failed) == (1, 1, ())
    assert report.stopped_early is None
    quiet.check([long])
    assert list(quiet.store.formations.list_formations(session_id=short.id)) == []
    [fact] = facts_of(quiet.store, Scope.user(EVE.id, ANNA.id))
    assert fact.content == "Anna spoke in long."


@ON_EACH_STORE
async def test_a_session_without_work_is_assessed_once(quiet: Quiet) -> None:
    quiet.add("long", 9)
    quiet.add("short", 3)
    considered = [(await quiet.run()).considered for _ in range(4)]
    assert considered == [2, 1, 0, 0]


async def test_few_long_messages_are_due(quiet: Quiet) -> None:
    session = quiet.add("dense", 0)
    text = "word " * 1400
    quiet.store.host.add_messages(session.id, [make_message(session, text, created_at=ago(days=1))])
    assert (await quiet.run()).formed == 1


async def test_a_recently_active_session_is_left_alone(quiet: Quiet) -> None:
    session = quiet.add("now", 4, days=9 / 1440)
    assert (await quiet.run()).considered == 0
    quiet.clock.advance(minutes=3)
    assert (await quiet.run()).formed == 1
    quiet.check([session])


async def test_a_session_that_becomes_active_is_left_alone(quiet: Quiet) -> None:
    """Pages of sessions are read ahead: a session may become active before its turn."""
    quiet.add("first", days=3)
    second = quiet.add("second", days=2)

    def speak(request: object) -> object:
        message = make_message(second, created_at=NOW, sender=ANNA.id)
        quiet.store.host.add_messages(second.id, [message])
        return {"facts": []}

    quiet.llm.script("facts", [speak])
    report = await quiet.run(cold={"concurrency": 1})
    assert (report.formed, report.active) == (1, 1)
    quiet.clock.advance(minutes=11)
    assert (await quiet.run()).formed == 1
    quiet.check([second])


# -- known failure 21 ----------------------------------------------------------------------------


async def test_known_failure_21_sessions_older_than_two_days_are_formed(quiet: Quiet) -> None:
    sessions = [quiet.add(f"{days} days", days=days) for days in (1, 3, 45, 800)]
    assert (await quiet.run()).formed == 4
    quiet.check(sessions)


@pytest.mark.slow
async def test_known_failure_21_more_than_fifty_sessions_oldest_first(
    sqlite_store: object, llm: FakeLLM, embedder: FakeEmbedder
) -> None:
    quiet = make_quiet(sqlite_store, llm, embedder)  # type: ignore[arg-type]
    sessions = [quiet.add(f"s{number:03}", days=200 - number) for number in range(60)]
    report = await quiet.run(cold={"concurrency": 1})
    assert report.formed == 60
    quiet.check(sessions)
    asked = [request.key.split("/")[0] for request in llm.requests_for("facts")]
    assert asked == sorted(asked)


@ON_EACH_STORE
async def test_agents_of_a_session_progress_independently(quiet: Quiet) -> None:
    session = quiet.add("both", agents=[EVE, ADAM])
    assert (await quiet.run(agent_id=EVE.id)).formed == 1
    report = await quiet.run()
    assert (report.formed, report.not_due) == (1, 1)
    quiet.check([session])


@ON_EACH_STORE
async def test_sessions_without_a_memory_context(quiet: Quiet) -> None:
    """Sessions that the platform created without a memory context."""
    sessions = [quiet.add("null"), quiet.add("missing")]
    if isinstance(quiet.store, MongoStore):
        database = quiet.store.connection.database
        database["sessions"].update_one({"name": "null"}, {"$set": {"memory_context": None}})
        database["sessions"].update_one({"name": "missing"}, {"$unset": {"memory_context": ""}})
        database["memory2_cold"].drop()
    assert (await quiet.run()).formed == 2
    quiet.check(sessions)


@ON_EACH_STORE
async def test_late_messages_are_formed_too(quiet: Quiet) -> None:
    session = quiet.add("late", 6, days=5)
    await quiet.run()
    await quiet.run()
    assert (await quiet.run()).considered == 0
    late = [
        make_message(session, f"Late {n}.", created_at=ago(days=30), sender=ANNA.id)
        for n in range(4)
    ]
    quiet.store.host.add_messages(session.id, late)
    assert (await quiet.run()).formed == 1
    quiet.check([session])


@ON_EACH_STORE
async def test_other_thresholds_reopen_settled_sessions(quiet: Quiet) -> None:
    session = quiet.add("short", 3)
    assert [(await quiet.run()).considered for _ in range(2)] == [1, 0]
    formation = FormationSettings(min_messages=2)
    quiet.settings = msgspec.structs.replace(quiet.settings, formation=formation)
    assert (await quiet.run()).formed == 1
    quiet.check([session])


# -- options -------------------------------------------------------------------------------------


@ON_EACH_STORE
async def test_sessions_beyond_limit_and_age_are_counted(quiet: Quiet) -> None:
    sessions = [quiet.add(f"s{days}", days=days) for days in (1, 2, 3, 40, 50)]
    quiet.add("short", 2, days=60)
    report = await quiet.run(limit=2, max_age=timedelta(days=30), cold={"concurrency": 1})
    assert (report.formed, *map(report.sessions_left_out, ("limit", "max_age"))) == (2, 1, 2)
    assert report.not_due == 1
    quiet.check([sessions[2], sessions[1]])  # the oldest session within the age limit
    assert (await quiet.run()).formed == 3
    quiet.check(sessions)


@ON_EACH_STORE
async def test_a_dry_run_calls_no_model_and_writes_nothing(quiet: Quiet) -> None:
    session = quiet.add("both", 8, agents=[EVE, ADAM])
    quiet.add("short", 2)
    before = _everything(quiet)
    report = await quiet.run(dry_run=True)
    assert quiet.llm.requests == []
    assert _everything(quiet) == before
    assert [(plan.session_id, plan.agent_id, plan.work) for plan in report.planned] == [
        (session.id, EVE.id, "form"),
        (session.id, ADAM.id, "form"),
    ]
    assert all(plan.messages == 8 and plan.tokens > 20 for plan in report.planned)
    assert (report.considered, report.formed, report.not_due) == (2, 0, 1)


def _everything(quiet: Quiet) -> object:
    if isinstance(quiet.store, MongoStore):
        database = quiet.store.connection.database
        return {
            name: list(database[name].find()) for name in sorted(database.list_collection_names())
        }
    assert isinstance(quiet.store, SqliteStore)
    with quiet.store.connections.reading() as connection:
        return list(connection.iterdump())


# -- unfinished work of earlier runs -------------------------------------------------------------


@ON_EACH_STORE
async def test_recorded_formations_are_completed_without_a_model(quiet: Quiet) -> None:
    session = quiet.add("recorded")
    formation = make_formation(
        session, list(quiet.store.host.messages(session.id)), now=ago(days=1)
    )
    assert quiet.store.formations.claim(formation)
    reflection = make_reflection(Scope.session(EVE.id, session.id))
    assert Steps(quiet.store).record(
        formation.id, changes=change_set(AddReflection(reflection=reflection, word_limit=200))
    )
    report = await quiet.run(llm=None)
    assert (report.completed, report.formed, report.stopped_early) == (1, 0, None)
    assert quiet.llm.requests == []
    assert len(quiet.store.memory.pending(reflection.home)) == 1
    quiet.check([session])


async def test_usage_is_summed_by_model(quiet: Quiet) -> None:
    for number in range(3):
        quiet.add(f"s{number}")
    report = await quiet.run()
    stored = [call for formation in quiet.formations() for call in formation.usage]
    for total in report.usage:
        calls = [call for call in stored if call.model == total.model]
        assert total.calls == len(calls)
        assert total.input_tokens == sum(call.input_tokens for call in calls)
    assert report.tokens == sum(call.input_tokens + call.output_tokens for call in stored) > 0


@ON_EACH_STORE
async def test_a_session_without_agents_is_not_a_failure(quiet: Quiet) -> None:
    session = Session(id=new_id(), agents=(new_id(),), users=(ANNA.id,), name="orphan")
    quiet.store.host.put_session(session)
    quiet.say(session, 6)
    report = await quiet.run()
    assert (report.considered, report.formed, report.failed) == (1, 0, ())
    assert (await quiet.run()).considered == 0
    assert quiet.formations(FormationStatus.FAILED) == []


async def test_a_run_settles_what_nobody_reviewed(quiet: Quiet) -> None:
    item = make_held(Scope.user(EVE.id, ANNA.id), held_at=ago(days=31))
    quiet.store.changes.apply(change_set(HoldItem(held=item)))
    review = ReviewSettings(days=30, then="accept")
    settings = msgspec.structs.replace(quiet.settings, review=review)
    tried = await quiet.run(settings=settings, dry_run=True)
    assert (tried.review_accepted, quiet.store.memory.count_held().number) == (0, 1)
    report = await quiet.run(settings=settings)
    assert (report.review_accepted, report.review_dropped) == (1, 0)
    [fact] = facts_of(quiet.store, Scope.user(EVE.id, ANNA.id))
    assert (fact.content, fact.unconfirmed) == (item.content, item.reasons)
    (entry,) = quiet.store.log.audit(target_id=fact.id)
    assert entry.reason == "not reviewed within 30 days"


def test_texts_that_wait_for_a_person_are_counted() -> None:
    """Nothing else in a cron run names a scope that is stuck."""
    scope = Scope.agent(new_id())
    report = ColdReport(started_at=NOW)
    report.count_texts(
        [
            ConsolidationReport(scope=scope, outcome=outcome)
            for outcome in ("written", "stuck", "waiting_for_review", "not_due")
        ]
    )
    assert (report.consolidations, report.texts_waiting) == (1, 2)
