"""The platform's and edenmem's progress on one cursor, and forming again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from edenmem.engine.formation.sharing import note_proof
from edenmem.models.backup import LoadStatus, RecordKind
from edenmem.models.changes import RemoveReflection
from edenmem.models.formation import Formation, FormationStatus, Reach
from edenmem.models.host import Message, Session
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.backup import dump
from tests.support.builders import (
    NOW,
    make_formation,
    make_message,
    make_messages,
    make_session,
    some,
)
from tests.support.formations import Steps
from tests.support.memory import applied
from tests.support.platform_cursor import put_cursor, put_proof

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
    formation = make_formation(session, messages, **fields)
    assert store.formations.claim(formation)
    outcome: dict[str, Any] = {"decisions": (), "usage": (), "counts": {}, "now": NOW}
    assert Steps(store).record(formation.id, **outcome)
    Steps(store).apply(formation.id, now=NOW)
    return formation


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def test_what_the_platform_read_does_not_wait(talk: tuple[Store, Session, list[Message]]) -> None:
    """Known failure 55 and FAILURES 91: proof is the sources of memory, for each agent."""
    store, session, messages = talk
    put_cursor(store, session.id, messages[-1].id)  # proves nothing
    read = ids(messages[2:6])
    put_proof(store, session.id, ONE, read)
    for noted in (False, True):
        backlog = store.formations.backlog(session.id, ONE, limit=99)
        assert backlog.by_platform == 4
        assert set(backlog.unnoted) == (set() if noted else set(read))
        assert store.formations.proof(session.id, ONE) == set(backlog.unnoted)
        assert waiting(store, session, ONE) == ids(messages[:2] + messages[6:])
        assert waiting(store, session, TWO) == ids(messages)
        for reach in (Reach.INCLUDE_FORMED, Reach.FROM_START):
            assert waiting(store, session, ONE, reach) == ids(messages)
        if backlog.unnoted:
            note_proof(store.formations, session.id, ONE, backlog.unnoted, NOW)
    # The copy outlives the platform's memory.
    applied(
        store,
        *(
            RemoveReflection(
                scope=each.home, reflection_id=each.id, expected_version=each.version, at=NOW
            )
            for each in store.memory.pending(Scope.session(ONE, session.id))
        ),
    )
    assert waiting(store, session, ONE) == ids(messages[:2] + messages[6:])
    form(store, session, messages[:4], seq=2)  # asked for again
    assert waiting(store, session, ONE) == ids(messages[6:])


def test_both_read_and_late_messages_wait(talk: tuple[Store, Session, list[Message]]) -> None:
    store, session, messages = talk
    form(store, session, messages[4:6])
    # Edenmem's own formation hides nothing: not from the other agent, and no late message.
    assert waiting(store, session, TWO) == ids(messages)
    late = make_message(session, "late", created_at=messages[4].created_at + timedelta(seconds=9))
    store.host.add_messages(session.id, [late])
    put_proof(store, session.id, ONE, ids(messages[4:8]))
    assert waiting(store, session, ONE) == ids([*messages[:4], late, *messages[8:]])
    for older in (messages[7].id, messages[3].id, None):  # an old copy changes nothing
        put_cursor(store, session.id, older)
        assert waiting(store, session, ONE) == ids([*messages[:4], late, *messages[8:]])


@pytest.mark.slow
def test_messages_of_a_superseded_formation_are_pending_again(
    talk: tuple[Store, Session, list[Message]], open_store: Callable[[str], Store]
) -> None:
    store, session, messages = talk
    put_proof(store, session.id, ONE, ids(messages[:2]))
    first = form(store, session, messages[2:6])
    claimed = make_formation(session, messages[6:8], seq=2)
    assert store.formations.claim(claimed)
    assert waiting(store, session, ONE, Reach.AGAIN) == ids(messages[2:6] + messages[8:])
    whole = messages[:6] + messages[8:]
    assert waiting(store, session, ONE, Reach.FROM_START) == ids(whole)

    assert not Steps(store).supersede(claimed.id, now=NOW)
    assert not Steps(store).supersede(first.id, keep=first.message_ids, now=NOW)
    kept = messages[3].id
    assert Steps(store).supersede(first.id, keep=[kept], now=NOW)
    assert not Steps(store).supersede(first.id, now=NOW)
    assert waiting(store, session, ONE) == ids([messages[2], *messages[4:6], *messages[8:]])
    found = some(store.formations.formation(first.id))
    assert (found.status, found.message_ids) == (FormationStatus.SUPERSEDED, (kept,))
    assert found.superseded_message_ids == first.message_ids
    assert Steps(store).fail(claimed.id, worker="worker-1", now=NOW, error="no")
    assert Steps(store).supersede(claimed.id, now=NOW)
    assert not Steps(store).retry(claimed.id, now=NOW)
    assert list(store.formations.list_formations(statuses=[FormationStatus.FAILED])) == []
    assert list(store.formations.list_formations(statuses=[FormationStatus.APPLIED])) == []
    superseded = store.formations.list_formations(statuses=[FormationStatus.SUPERSEDED])
    assert {formation.id for formation in superseded} == {first.id, claimed.id}

    form(store, session, [messages[2], *messages[4:8]], seq=3)
    assert waiting(store, session, ONE) == ids(messages[8:])
    for kind in ("sqlite", "secantus"):  # also after a restored backup
        other = open_store(kind)
        for each in (
            RecordKind.SESSION,
            RecordKind.MESSAGE,
            RecordKind.REFLECTION,
            RecordKind.FORMATION,
        ):
            records = [record for _, record in dump(store, [each])]
            answers = other.walk.load(each, records)
            assert {answer.status for answer in answers} == {LoadStatus.ADDED}
            assert [record for _, record in dump(other, [each])] == records
        assert waiting(other, session, ONE) == ids(messages[8:])


def test_superseding_resets_the_cold_runs_note(talk: tuple[Store, Session, list[Message]]) -> None:
    store, session, messages = talk
    formation = form(store, session, messages)
    later = NOW + timedelta(days=1)
    for rounds in (1, 0):
        found = list(store.cold.quiet_sessions(before=later, rules="r"))
        assert len(found) == rounds
        for quiet in found:
            assert store.cold.settle(session.id, seen=quiet.seen, rules="r")
    assert Steps(store).supersede(formation.id, now=NOW)
    assert len(list(store.cold.quiet_sessions(before=later, rules="r"))) == 1
