"""Notes about quiet sessions in a database that the platform also writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo.monitoring import CommandListener

from edenmem.models.host import Session
from edenmem.models.ids import new_id, utc_now
from edenmem.store.mongo import MongoStore
from edenmem.store.mongo.host.host_codec import SESSION_FIELDS
from tests.store.mongo.conftest import OpenMongo
from tests.store.mongo.test_indexes import Watcher
from tests.support.builders import make_agent, make_message, make_session

pytestmark = pytest.mark.slow

EVE = make_agent("eve")
RULES = "rules-1"
MONTH_AGO = utc_now() - timedelta(days=30)


def quiet(store: MongoStore) -> list[str]:
    found = store.cold.quiet_sessions(before=utc_now() - timedelta(minutes=10), rules=RULES)
    return [each.session.id for each in found]


def settle(store: MongoStore) -> None:
    found = store.cold.quiet_sessions(before=utc_now() - timedelta(minutes=10), rules=RULES)
    for each in list(found):
        assert store.cold.settle(each.session.id, seen=each.seen, rules=RULES)
    assert quiet(store) == []


def add(store: MongoStore, messages: int = 3, *, at: datetime = MONTH_AGO) -> Session:
    """A session with old messages, added by edenmem."""
    session = make_session([EVE], last_activity=None)
    store.host.put_session(session)
    store.host.add_messages(
        session.id,
        [make_message(session, id=new_id(at), created_at=at) for _ in range(messages)],
    )
    return session


def platform_writes(
    database: Any, *sessions: Session, at: datetime, written: datetime | None = None
) -> ObjectId:
    """A message stored by the platform, with an ID created at ``written``."""
    document = {
        "_id": ObjectId(new_id(written or utc_now())),
        "session": [ObjectId(session.id) for session in sessions],
        "role": "user",
        "content": "Hello.",
        "createdAt": at,
    }
    database["messages"].insert_one(document)
    return document["_id"]


def test_a_message_of_the_platform_resets_the_note(mongo: MongoStore, database: Any) -> None:
    session, other = add(mongo), add(mongo)
    settle(mongo)
    platform_writes(database, session, at=utc_now() - timedelta(hours=2))
    assert quiet(mongo) == [session.id]
    assert other.id not in quiet(mongo)


def test_a_late_message_of_the_platform_resets_the_note(mongo: MongoStore, database: Any) -> None:
    """Its time is before that of the newest message, which therefore stays the newest."""
    session = add(mongo)
    settle(mongo)
    platform_writes(database, session, at=MONTH_AGO - timedelta(days=1))
    assert quiet(mongo) == [session.id]


def test_an_id_created_before_the_last_run_and_written_after_it(
    mongo: MongoStore, database: Any
) -> None:
    session = add(mongo)
    settle(mongo)
    early = utc_now() - timedelta(minutes=50)
    platform_writes(database, session, at=early, written=early)
    assert quiet(mongo) == [session.id]


def test_one_message_less_and_one_more_are_noticed(mongo: MongoStore, database: Any) -> None:
    session = add(mongo)
    settle(mongo)
    database["messages"].delete_one({"session": ObjectId(session.id)})
    platform_writes(database, session, at=utc_now() - timedelta(hours=2))
    assert quiet(mongo) == [session.id]


def test_a_message_in_two_sessions_resets_both_notes(mongo: MongoStore, database: Any) -> None:
    one, two = add(mongo), add(mongo)
    settle(mongo)
    platform_writes(database, one, two, at=utc_now() - timedelta(hours=2))
    assert sorted(quiet(mongo)) == sorted([one.id, two.id])


def test_known_failure_14_a_session_rewritten_by_the_platform_is_noticed(
    mongo: MongoStore, database: Any
) -> None:
    session = add(mongo)
    old = database["sessions"].find_one({"_id": ObjectId(session.id)})
    settle(mongo)
    stale = database["sessions"].find_one({"_id": ObjectId(session.id)})
    assert stale == old  # it contains none of our fields
    platform_writes(database, session, at=utc_now() - timedelta(hours=2))
    assert quiet(mongo) == [session.id]
    database["sessions"].replace_one({"_id": stale["_id"]}, stale)
    assert quiet(mongo) == [session.id]


def test_messages_of_an_hour_ago_stay_settled(mongo: MongoStore, database: Any) -> None:
    """Each run reads them again, without any change."""
    session = make_session([EVE], last_activity=None)
    mongo.host.put_session(session)
    platform_writes(database, session, at=utc_now() - timedelta(minutes=30))
    assert quiet(mongo) == [session.id]
    settle(mongo)
    assert quiet(mongo) == []


def test_sessions_from_before_the_first_run_are_found(mongo: MongoStore, database: Any) -> None:
    sessions = [make_session([EVE], last_activity=None) for _ in range(7)]
    for days, session in enumerate(sessions):
        mongo.host.put_session(session)
        at = MONTH_AGO - timedelta(days=days)
        platform_writes(database, session, at=at, written=at)
    assert quiet(mongo) == [session.id for session in reversed(sessions)]


def test_an_interrupted_first_sweep_is_resumed(
    mongo: MongoStore, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edenmem.store.mongo.formations.cold._SWEEP", 2)
    sessions = [make_session([EVE], last_activity=None) for _ in range(5)]
    for session in sessions:
        mongo.host.put_session(session)
        platform_writes(database, session, at=MONTH_AGO, written=MONTH_AGO)
    refresh, calls = mongo.cold._refresh, 0

    def dies(*args: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        refresh(*args, **options)

    monkeypatch.setattr(mongo.cold, "_refresh", dies)
    with pytest.raises(KeyboardInterrupt):
        quiet(mongo)
    monkeypatch.setattr(mongo.cold, "_refresh", refresh)
    assert sorted(quiet(mongo)) == sorted(session.id for session in sessions)


def test_every_session_is_checked_within_a_week(mongo: MongoStore, database: Any) -> None:
    """Only this finds a restored backup with its old IDs."""
    sessions = [add(mongo) for _ in range(10)]
    settle(mongo)
    for session in sessions:
        platform_writes(database, session, at=MONTH_AGO, written=MONTH_AGO)
    assert quiet(mongo) == []
    seen: set[str] = set()
    for _ in range(7):
        database["memory2_cold"].update_one(
            {"_id": "progress"}, {"$set": {"swept_at": utc_now() - timedelta(days=1, minutes=1)}}
        )
        seen |= set(quiet(mongo))
    assert len(seen) >= 7
    for _ in range(4):
        database["memory2_cold"].update_one(
            {"_id": "progress"}, {"$set": {"swept_at": utc_now() - timedelta(days=1, minutes=1)}}
        )
        seen |= set(quiet(mongo))
    assert seen == {session.id for session in sessions}


class _Answers(CommandListener):
    """Keeps the fields of the sessions that the server sent."""

    def __init__(self) -> None:
        self.sent: set[str] = set()

    def started(self, event: Any) -> None:
        """Do nothing."""

    def succeeded(self, event: Any) -> None:
        cursor = event.reply.get("cursor", {})
        if cursor.get("ns", "").endswith(".sessions"):
            for document in (*cursor.get("firstBatch", ()), *cursor.get("nextBatch", ())):
                self.sent.update(_paths(document))

    def failed(self, event: Any) -> None:
        """Do nothing."""


def _paths(document: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_only_the_needed_fields_of_a_session_are_read(open_mongo: OpenMongo) -> None:
    """Sessions of the platform hold cached memory, settings and old messages, up to 16 MB each."""
    answers = _Answers()
    store = open_mongo(listeners=(answers,))
    store.database.initialize()
    session = add(store)
    large = {
        "messages": [{"content": "x" * 1000}],
        "memory_context.cached_memory_context": "x" * 1000,
        "context": {"notes": "x" * 1000},
        "extras.settings": "x" * 1000,
    }
    key = {"_id": ObjectId(session.id)}
    store.connection.database["sessions"].update_one(key, {"$set": large})
    answers.sent.clear()
    before = utc_now() - timedelta(minutes=10)
    for rules in (RULES, None):
        (found,) = store.cold.quiet_sessions(before=before, rules=rules)
        assert (found.session.id, found.session.agents) == (session.id, session.agents)
    assert answers.sent
    assert answers.sent <= {"_id", *SESSION_FIELDS}


def test_settled_sessions_cost_no_query_each(open_mongo: OpenMongo) -> None:
    watcher = Watcher()
    store = open_mongo(listeners=(watcher,))
    store.database.initialize()

    def cost() -> int:
        before = len(watcher.seen)
        assert quiet(store) == []
        return len(watcher.seen) - before

    add(store)
    settle(store)
    few = cost()
    for _ in range(40):
        add(store)
    settle(store)
    assert cost() == few < 15
