"""The platform's and edenmem's progress on one cursor, and forming again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from edenmem.models.backup import LoadStatus, RecordKind
from edenmem.models.formation import Formation, FormationStatus, Reach
from edenmem.models.host import Message, Session
from edenmem.models.ids import new_id
from edenmem.store.protocol.store import Store
from tests.support.backup import dump
from tests.support.builders import (
    NOW,
    change_set,
    make_formation,
    make_message,
    make_messages,
    make_session,
)
from tests.support.platform_cursor import cursor_of, put_cursor

ONE, TWO = new_id(), new_id()


@pytest.fixture
def talk(store: Store) -> tuple[Store, Session, list[Message]]:
    """A session of two agents and ten messages, half a minute apart."""
    session = make_session([ONE, TWO], [new_id()])
    store.host.put_session(session)
    messages = make_messages(session, 10)
    store.host.add_messages(session.id, messages)
    return store, session, messages


def waiting(store: Store, session: Session, agent: str, reach: Reach = Reach.WAITING) -> list[str]:
    backlog = store.formations.backlog(session.id, agent, limit=99, reach=reach)
    assert backlog.total == len(backlog.messages)
    return [message.id for message in backlog.messages]


def form(store: Store, session: Session, messages: list[Message], **fields: Any) -> Formation:
    """Form the messages from claim to apply, without an outcome."""
    formation = make_formation(session, messages, cursor_moves=(), **fields)
    assert store.formations.claim(formation)
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}, "now": NOW}
    assert store.formations.record(formation.id, worker="worker-1", changes=change_set(), **outcome)
    store.formations.apply_formation(formation.id, now=NOW)
    return formation


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


@pytest.mark.parametrize("cursor", ["there", "deleted", "last deleted", "no id", "none"])
def test_known_failure_55_what_the_platform_formed_does_not_wait(
    talk: tuple[Store, Session, list[Message]], cursor: str
) -> None:
    store, session, messages = talk
    soon = timedelta(seconds=1)
    places = {
        "there": (messages[5].id, 6),
        "deleted": (new_id(messages[5].created_at + soon), 6),
        "last deleted": (new_id(messages[-1].created_at + soon), 10),
        "no id": ("the last one", 0),
        "none": (None, 0),
    }
    put_cursor(store, session.id, places[cursor][0])
    covered = places[cursor][1]
    for agent in (ONE, TWO):
        assert waiting(store, session, agent) == ids(messages[covered:])
        assert store.formations.backlog(session.id, agent, limit=1).by_platform == covered
        for reach in (Reach.INCLUDE_FORMED, Reach.FROM_START):
            assert waiting(store, session, agent, reach) == ids(messages)


def test_forming_in_turns_neither_repeats_nor_loses_messages(
    talk: tuple[Store, Session, list[Message]],
) -> None:
    store, session, messages = talk
    put_cursor(store, session.id, messages[3].id)
    form(store, session, messages[4:6])
    assert cursor_of(store, session.id) == messages[5].id
    # Edenmem's own move hides nothing: not from the other agent, and no late message.
    assert waiting(store, session, TWO) == ids(messages[4:])
    late = make_message(session, "late", created_at=messages[4].created_at + timedelta(seconds=9))
    store.host.add_messages(session.id, [late])
    put_cursor(store, session.id, messages[7].id)
    assert waiting(store, session, ONE) == [late.id, *ids(messages[8:])]
    form(store, session, [late, *messages[8:]], seq=2)
    # Before each turn the platform writes back an older copy of the session.
    for older in (messages[9], messages[7], messages[5], messages[3]):
        put_cursor(store, session.id, older.id)
        assert waiting(store, session, ONE) == []
    put_cursor(store, session.id, None)
    assert waiting(store, session, ONE) == []
    assert waiting(store, session, TWO) == ids([messages[4], late, messages[5], *messages[8:]])


def test_the_cursor_never_moves_backwards(talk: tuple[Store, Session, list[Message]]) -> None:
    store, session, messages = talk
    form(store, session, messages[:2], agent_id=TWO)
    assert cursor_of(store, session.id) is None  # it follows the session's first agent
    formation = make_formation(session, messages[:2], cursor_moves=())
    assert store.formations.claim(formation)
    put_cursor(store, session.id, messages[7].id)
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}, "now": NOW}
    assert store.formations.record(formation.id, worker="worker-1", changes=change_set(), **outcome)
    store.formations.apply_formation(formation.id, now=NOW)
    assert cursor_of(store, session.id) == messages[7].id
    assert waiting(store, session, ONE) == ids(messages[8:])
    gone = new_id(messages[-1].created_at + timedelta(seconds=1))
    put_cursor(store, session.id, gone)
    form(store, session, messages[8:9], seq=2)
    assert cursor_of(store, session.id) == gone


def test_an_older_formation_without_recorded_moves_moved_the_cursor(
    talk: tuple[Store, Session, list[Message]],
) -> None:
    store, session, messages = talk
    old = make_formation(session, messages[2:4], status=FormationStatus.APPLIED, worker=None)
    assert old.cursor_moves is None
    [answer] = store.walk.load(RecordKind.FORMATION, [old])
    assert answer.status is LoadStatus.ADDED
    put_cursor(store, session.id, messages[3].id)
    assert waiting(store, session, TWO) == ids(messages)
    assert waiting(store, session, ONE) == ids(messages[:2] + messages[4:])


def test_messages_of_a_superseded_formation_are_pending_again(
    talk: tuple[Store, Session, list[Message]], open_store: Callable[[str], Store]
) -> None:
    store, session, messages = talk
    put_cursor(store, session.id, messages[1].id)
    first = form(store, session, messages[2:6])
    claimed = make_formation(session, messages[6:8], seq=2, cursor_moves=())
    assert store.formations.claim(claimed)
    assert waiting(store, session, ONE, Reach.AGAIN) == ids(messages[2:6] + messages[8:])
    whole = messages[:6] + messages[8:]
    assert waiting(store, session, ONE, Reach.FROM_START) == ids(whole)

    assert not store.formations.supersede(claimed.id, now=NOW)
    assert not store.formations.supersede(first.id, keep=first.message_ids, now=NOW)
    kept = messages[3].id
    assert store.formations.supersede(first.id, keep=[kept], now=NOW)
    assert not store.formations.supersede(first.id, now=NOW)
    assert waiting(store, session, ONE) == ids([messages[2], *messages[4:6], *messages[8:]])
    found = store.formations.formation(first.id)
    assert found is not None
    assert (found.status, found.message_ids) == (FormationStatus.SUPERSEDED, (kept,))
    assert found.superseded_message_ids == first.message_ids
    assert store.formations.fail(claimed.id, worker="worker-1", now=NOW, error="no")
    assert store.formations.supersede(claimed.id, now=NOW)
    assert not store.formations.retry(claimed.id, now=NOW)
    assert list(store.formations.list_formations(statuses=[FormationStatus.FAILED])) == []
    assert list(store.formations.list_formations(statuses=[FormationStatus.APPLIED])) == []
    superseded = store.formations.list_formations(statuses=[FormationStatus.SUPERSEDED])
    assert {formation.id for formation in superseded} == {first.id, claimed.id}

    form(store, session, [messages[2], *messages[4:8]], seq=3)
    assert waiting(store, session, ONE) == ids(messages[8:])
    for kind in ("sqlite", "secantus"):  # also after a restored backup
        other = open_store(kind)
        for each in (RecordKind.SESSION, RecordKind.MESSAGE, RecordKind.FORMATION):
            records = [record for _, record in dump(store, [each])]
            answers = other.walk.load(each, records)
            assert {answer.status for answer in answers} == {LoadStatus.ADDED}
            assert [record for _, record in dump(other, [each])] == records
        assert waiting(other, session, ONE) == ids(messages[8:])


def test_superseding_resets_the_cold_runs_note(
    talk: tuple[Store, Session, list[Message]],
) -> None:
    store, session, messages = talk
    formation = form(store, session, messages)
    later = NOW + timedelta(days=1)
    for rounds in (1, 0):
        found = list(store.cold.quiet_sessions(before=later, rules="r"))
        assert len(found) == rounds
        for quiet in found:
            assert store.cold.settle(session.id, seen=quiet.seen, rules="r")
    assert store.formations.supersede(formation.id, now=NOW)
    assert len(list(store.cold.quiet_sessions(before=later, rules="r"))) == 1
