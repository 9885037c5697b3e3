"""What changes while a model answers, and the rest of a range that was begun."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from bson import ObjectId

from edenmem.llm.protocol import LLMRequest
from edenmem.models.host import Session
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.engine.cold.conftest import ANNA, EVE, ON_EACH_STORE, Quiet, fact_of, no_reflections
from tests.support.builders import ago, make_formation, make_messages
from tests.support.formations import Steps
from tests.support.memory import facts_of
from tests.support.platform_cursor import put_proof

pytestmark = ON_EACH_STORE


def _meanwhile(quiet: Quiet, act: Callable[[], object], task: str = "facts") -> None:
    """Act while the model answers, once."""
    standing = {"facts": fact_of, "reflections": no_reflections}[task]

    def answer(request: LLMRequest[Any]) -> Any:
        act()
        return standing(request)

    quiet.llm.script(task, [answer])


def _delete(quiet: Quiet, session: Session, *, message: bool) -> None:
    """Delete a session, or its first message, as the host does."""
    first = next(iter(quiet.store.host.messages(session.id))).id
    if isinstance(quiet.store, SqliteStore):
        statement = "DELETE FROM messages WHERE id = ?"
        if not message:
            statement = "UPDATE sessions SET deleted = 1 WHERE id = ?"
        with quiet.store.connections.writing() as connection:
            connection.execute(statement, (first if message else session.id,))
        return
    database: Any = quiet.store.connection  # type: ignore[attr-defined]
    if message:
        database.messages.delete_many({"_id": ObjectId(first)})
    else:
        database.sessions.update_one({"_id": ObjectId(session.id)}, {"$set": {"deleted": True}})


@pytest.mark.parametrize("change", ["session", "message", "person", "read", "nothing"])
async def test_what_changed_meanwhile_is_not_stored(quiet: Quiet, change: str) -> None:
    """FAILURES 90 and 96."""
    session = quiet.add("changing", 4)
    if change == "read":
        if isinstance(quiet.store, SqliteStore):
            pytest.skip("no platform uses a file")
        theirs = {"$set": {"session_type": "passive"}}
        quiet.store.connection.sessions.update_many({}, theirs)  # type: ignore[attr-defined]
        quiet.embedder = None  # type: ignore[assignment] # its vectors are of another model
    read = [message.id for message in quiet.store.host.messages(session.id)]
    joined = make_messages(session, 1, start=ago(days=0.9), sender=new_id())
    acts: dict[str, Callable[[], object]] = {
        "session": lambda: _delete(quiet, session, message=False),
        "message": lambda: _delete(quiet, session, message=True),
        "person": lambda: quiet.store.host.add_messages(session.id, joined),
        "read": lambda: put_proof(quiet.store, session.id, EVE.id, read),
        "nothing": lambda: None,
    }
    _meanwhile(quiet, acts[change])
    report = await quiet.run()
    stored = facts_of(quiet.store, Scope.user(EVE.id, ANNA.id))
    [formation] = quiet.formations()
    assert formation.status == "applied"
    refused = [each.reason for each in formation.decisions if each.action == "REJECTED"]
    if change == "nothing":
        assert (len(stored), refused) == (1, [])
        return
    assert (stored, len(refused)) == ([], 1)
    assert report.read_twice == (4 if change == "read" else 0)


async def test_a_recorded_outcome_is_checked_again(
    quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAILURES 96: also if the worker was killed before it applied the outcome."""
    session = quiet.add("killed", 4)
    formations = type(quiet.store.formations)

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(formations, "apply_formation", die)
        await quiet.run()
    [formation] = quiet.formations()
    assert formation.status == "recorded"
    joined = make_messages(session, 1, start=ago(days=0.9), sender=new_id())
    quiet.store.host.add_messages(session.id, joined)
    quiet.clock.advance(hours=1)
    await quiet.run()
    assert facts_of(quiet.store, Scope.user(EVE.id, ANNA.id)) == []
    assert next(iter(quiet.formations())).status == "applied"


async def test_a_resumed_claim_leaves_out_what_was_read(quiet: Quiet) -> None:
    """FAILURES 90: a killed worker's range, of which the platform read a part since."""
    session = quiet.add("resumed", 6)
    messages = list(quiet.store.host.messages(session.id))
    claimed = make_formation(session, messages, now=ago(hours=9), worker="gone")
    assert quiet.store.formations.claim(claimed)
    put_proof(quiet.store, session.id, EVE.id, [message.id for message in messages[:4]])
    report = await quiet.run()
    assert report.messages == 2
    assert report.read_twice == 4
    [request] = quiet.llm.requests_for("facts")
    assert messages[0].content not in str(request)
    assert messages[5].content in str(request)
    assert (await quiet.run()).formed == 0


async def test_a_retried_range_leaves_out_what_was_read(quiet: Quiet) -> None:
    """FAILURES 90: a run between the failure and the retry has seen what the platform read."""
    session = quiet.add("retried", 6)
    messages = list(quiet.store.host.messages(session.id))
    failed = make_formation(session, messages, now=ago(hours=9), worker="gone")
    formations = quiet.store.formations
    assert formations.claim(failed)
    assert Steps(quiet.store).fail(
        failed.id, worker="gone", now=ago(hours=8), error="the model is down"
    )
    put_proof(quiet.store, session.id, EVE.id, [message.id for message in messages[:4]])
    await quiet.run()
    assert Steps(quiet.store).retry(failed.id, now=quiet.clock())
    report = await quiet.run()
    assert (report.messages, report.read_twice) == (2, 4)
    [request] = quiet.llm.requests_for("facts")
    assert messages[0].content not in str(request)


async def test_the_rest_of_a_begun_range_has_no_minimum(quiet: Quiet) -> None:
    """FAILURES 107: a cold run was killed between two ranges."""
    session = quiet.add("begun", 6)
    messages = list(quiet.store.host.messages(session.id))
    now = quiet.clock()
    first = make_formation(session, messages[:4], now=now)
    formations = quiet.store.formations
    assert formations.claim(first)
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}, "now": now}
    assert Steps(quiet.store).record(first.id, **outcome)
    Steps(quiet.store).apply(first.id, now=now)
    report = await quiet.run()
    assert (report.formed, report.messages) == (1, 2)
    # New messages after it have the minimum again.
    quiet.clock.advance(hours=2)
    later = make_messages(session, 2, start=now + timedelta(minutes=5), sender=ANNA.id)
    quiet.store.host.add_messages(session.id, later)
    assert (await quiet.run()).formed == 0


async def test_a_long_session_is_formed_in_ranges_to_its_end(quiet: Quiet) -> None:
    """FAILURES 91 and 107, without a kill: the last range is shorter than the minimum."""
    session = quiet.add("long", 10)
    formation = msgspec.structs.replace(quiet.settings.formation, max_messages=4)
    settings = msgspec.structs.replace(quiet.settings, formation=formation)
    assert (await quiet.run(settings=settings)).messages == 10
    quiet.check([session])
