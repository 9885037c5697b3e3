"""Formation: claim, record and apply steps, and the remaining backlog."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from edenmem.engine.formation.claims import step
from edenmem.memory import formations as steps
from edenmem.models.changes import AddFact, AddReflection, ChangeSet, ChangeStatus
from edenmem.models.forgetting import Passage
from edenmem.models.formation import CallUsage, Decision, Formation, FormationStatus, Trigger
from edenmem.models.host import Message, Session
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import (
    NOW,
    ago,
    change_set,
    make_fact,
    make_formation,
    make_message,
    make_messages,
    make_reflection,
    make_session,
    removal,
    some,
)
from tests.support.formations import Steps
from tests.support.memory import applied, facts_of
from tests.support.platform_cursor import cursor_of

SOON = NOW + timedelta(minutes=1)
EXPIRED = NOW + timedelta(hours=1)  # the builders' default lease has expired by then
UNFINISHED = (FormationStatus.CLAIMED, FormationStatus.RELEASED, FormationStatus.RECORDED)
USAGE = CallUsage(task="facts", model="m", input_tokens=10, output_tokens=5, cost=0.25)
LEASE = timedelta(minutes=5)
Rule = Callable[[Formation], Formation | None]
DECISION = Decision(content="Anna sings.", action="ADD", reason="new")


def make_talk(
    store: Store, count: int = 10, *, agents: Sequence[str] = ()
) -> tuple[Session, list[Message]]:
    """A stored session with messages."""
    session = make_session(agents or [new_id()], [new_id()])
    store.host.put_session(session)
    messages = make_messages(session, count)
    store.host.add_messages(session.id, messages)
    return session, messages


def claim(
    store: Store, session: Session, messages: Sequence[Message], **fields: object
) -> Formation:
    """A claim that must succeed."""
    formation = make_formation(session, messages, **fields)
    assert store.formations.claim(formation)
    return formation


def outcome(session: Session) -> ChangeSet:
    """A typical outcome of a formation."""
    scope = Scope.user(session.agents[0], session.users[0])
    return change_set(
        AddFact(fact=make_fact(scope, "Anna sings.", session_id=session.id)),
        AddFact(fact=make_fact(scope, "Anna keeps bees.", session_id=session.id)),
        AddReflection(reflection=make_reflection(scope, session_id=session.id), word_limit=300),
        at=SOON,
    )


def record(
    store: Store, formation: Formation, changes: ChangeSet, *, worker: str = "worker-1"
) -> Formation | None:
    return Steps(store).record(
        formation.id,
        worker=worker,
        changes=changes,
        decisions=[DECISION],
        usage=[USAGE],
        counts={"facts": 2, "reflections": {"user": 1}},
        now=SOON,
    )


def finish(store: Store, formation: Formation) -> None:
    """Complete a claimed formation without an outcome."""
    worker = formation.worker or ""
    assert record(store, formation, change_set(), worker=worker)
    Steps(store).apply(formation.id, now=SOON)


def stored(store: Store, formation: Formation) -> Formation:
    return some(store.formations.formation(formation.id))


def reclaim(
    store: Store,
    formation: Formation,
    worker: str,
    *,
    now: datetime = EXPIRED,
) -> Formation | None:
    until = now + timedelta(minutes=5)
    return Steps(store).claim(formation.id, worker=worker, now=now, lease_until=until)


# -- claim ---------------------------------------------------------------------------------------


def test_a_claim_is_kept_as_it_was_made(store: Store) -> None:
    session, messages = make_talk(store)
    formation = claim(store, session, messages, trigger=Trigger.COLD)
    assert store.formations.formation(formation.id) == formation
    assert store.formations.formation(new_id()) is None
    assert list(store.formations.list_formations(session_id=session.id)) == [formation]


def test_one_formation_of_a_session_is_unfinished_at_a_time(store: Store) -> None:
    session, messages = make_talk(store)
    first = claim(store, session, messages[:4])
    second = make_formation(session, messages[4:], seq=2)
    assert not store.formations.claim(second)
    assert not store.formations.claim(first)
    assert record(store, first, change_set())
    assert not store.formations.claim(second)
    Steps(store).apply(first.id, now=SOON)
    assert store.formations.claim(second)
    assert stored(store, second).status is FormationStatus.CLAIMED


@pytest.mark.parametrize("released", [True, False], ids=["released", "failed"])
def test_a_failed_formation_blocks_only_its_messages(store: Store, released: bool) -> None:
    session, messages = make_talk(store)
    first = claim(store, session, messages[:4])
    if released:
        assert Steps(store).release(first.id, worker="worker-1", now=SOON, error="later")
    else:
        assert Steps(store).fail(first.id, worker="worker-1", now=SOON, error="never")
    assert not store.formations.claim(make_formation(session, messages[3:6], seq=2))
    assert store.formations.claim(make_formation(session, messages[4:6], seq=2)) is not released


def test_no_message_is_in_two_formations_of_one_agent(store: Store) -> None:
    """Known failure 14: separate read and write gave one claim to two workers."""
    session, messages = make_talk(store)
    finish(store, claim(store, session, messages[:4]))
    for overlap in (slice(0, 4), slice(3, 8), slice(1, 2), slice(0, 10)):
        assert not store.formations.claim(make_formation(session, messages[overlap], seq=2))
    assert store.formations.claim(make_formation(session, messages[4:], seq=2))


def test_a_number_in_the_series_is_used_once(store: Store) -> None:
    session, messages = make_talk(store)
    finish(store, claim(store, session, messages[:4], seq=1))
    assert not store.formations.claim(make_formation(session, messages[4:], seq=1))
    assert store.formations.claim(make_formation(session, messages[4:], seq=2))


def test_each_agent_of_a_session_has_its_own_progress(store: Store) -> None:
    """Known failure 21: only the first agent of a session was processed."""
    one, two = new_id(), new_id()
    session, messages = make_talk(store, agents=[one, two])
    first = claim(store, session, messages[:6], agent_id=one)
    second = claim(store, session, messages[:8], agent_id=two)
    finish(store, first)
    assert store.formations.backlog(session.id, one, limit=99).total == 4
    assert store.formations.backlog(session.id, two, limit=99).total == 2
    assert stored(store, second).status is FormationStatus.CLAIMED
    assert [
        f.id for f in store.formations.list_formations(session_id=session.id, agent_id=two)
    ] == [second.id]


def test_sessions_do_not_block_each_other(store: Store) -> None:
    agent = new_id()
    one, messages_of_one = make_talk(store, agents=[agent])
    two, messages_of_two = make_talk(store, agents=[agent])
    claim(store, one, messages_of_one)
    claim(store, two, messages_of_two)
    assert len(list(store.formations.list_formations(agent_id=agent))) == 2


# -- backlog -------------------------------------------------------------------------------------


def test_the_backlog_is_what_no_formation_has(store: Store) -> None:
    session, messages = make_talk(store, 10)
    agent = session.agents[0]
    backlog = store.formations.backlog(session.id, agent, limit=3)
    assert (list(backlog.messages), backlog.total) == (messages[:3], 10)
    finish(store, claim(store, session, messages[:4]))
    backlog = store.formations.backlog(session.id, agent, limit=99)
    assert (list(backlog.messages), backlog.total) == (messages[4:], 6)
    claim(store, session, messages[4:9], seq=2)
    backlog = store.formations.backlog(session.id, agent, limit=99)
    assert (list(backlog.messages), backlog.total) == (messages[9:], 1)
    assert store.formations.backlog(new_id(), agent, limit=9).total == 0


def test_late_and_simultaneous_messages_are_neither_missed_nor_repeated(store: Store) -> None:
    """Known failure 20: a last-message marker missed late messages, or started over."""
    session, messages = make_talk(store, 6)
    agent = session.agents[0]
    finish(store, claim(store, session, messages[:4]))
    early = make_message(session, "late, dated early", created_at=ago(days=1))
    ties = [make_message(session, f"tie {n}", created_at=messages[3].created_at) for n in range(3)]
    store.host.add_messages(session.id, [*ties, early])
    wanted = sorted([early, *ties, *messages[4:]], key=lambda m: (m.created_at, m.id))
    backlog = store.formations.backlog(session.id, agent, limit=99)
    assert (list(backlog.messages), backlog.total) == (wanted, 6)
    for seq, message in enumerate(wanted, start=2):
        assert store.formations.backlog(session.id, agent, limit=1).messages == (message,)
        finish(store, claim(store, session, [message], seq=seq))
    assert store.formations.backlog(session.id, agent, limit=9).total == 0


def test_a_failed_range_is_not_new_and_not_forgotten(store: Store) -> None:
    """Known failure 12: messages were marked done, and the error was swallowed."""
    session, messages = make_talk(store, 6)
    agent = session.agents[0]
    formation = claim(store, session, messages[:4])
    assert Steps(store).fail(formation.id, worker="worker-1", now=SOON, error="no", usage=[USAGE])
    backlog = store.formations.backlog(session.id, agent, limit=99)
    assert (list(backlog.messages), backlog.total) == (messages[4:], 2)
    (failed,) = store.formations.list_formations(
        session_id=session.id, statuses=[FormationStatus.FAILED]
    )
    assert (failed.id, failed.error) == (formation.id, "no")
    assert failed.message_ids == formation.message_ids
    assert Steps(store).retry(formation.id, now=EXPIRED)
    taken = some(reclaim(store, formation, "worker-2"))
    assert taken.message_ids == formation.message_ids
    assert store.formations.backlog(session.id, agent, limit=99).total == 2


def test_a_long_backlog_is_counted_whole(store: Store) -> None:
    session, messages = make_talk(store, 1100)
    backlog = store.formations.backlog(session.id, session.agents[0], limit=50)
    assert (list(backlog.messages), backlog.total) == (messages[:50], 1100)
    finish(store, claim(store, session, messages[:1000]))
    backlog = store.formations.backlog(session.id, session.agents[0], limit=50)
    assert (list(backlog.messages), backlog.total) == (messages[1000:1050], 100)


# -- steps ----------------------------------------------------------------------------------------


def by(rule: Callable[..., Formation | None], *args: Any, **kwargs: Any) -> Rule:
    return lambda known: rule(known, *args, **kwargs)


LIVES = (
    "in two steps",
    "by two workers",
    "taken over",
    "after a pause",
    "failed",
    "failed for good",
)


def lives(formation: Formation) -> dict[str, list[Formation]]:
    """The states of formations from their claim on, each by a step from the one before."""
    me, you = "worker-1", "worker-2"
    outcome: dict[str, Any] = {
        "changes": change_set(),
        "decisions": [DECISION],
        "usage": [USAGE],
        "counts": {"facts": 2, "reflections": {"user": 1}},
    }
    kept = formation.message_ids[:2]
    take = by(steps.claim, you, EXPIRED, lease_until=EXPIRED + LEASE)
    facts = by(steps.record, me, SOON, **outcome, next_step="reflections")
    rest = by(steps.record, me, SOON, **outcome)
    release = by(steps.release, me, SOON, not_before=EXPIRED, error="429", usage=[USAGE])
    fail = by(steps.fail, me, SOON, error="never", usage=[USAGE])
    done = by(steps.apply, now=SOON)
    told = {
        "in two steps": [
            by(steps.renew, me, lease_until=EXPIRED),
            by(steps.narrow, me, SOON, message_ids=kept, last_message_at=NOW),
            facts,
            by(steps.apply, now=SOON, worker=me),
            rest,
            done,
            by(steps.supersede, keep={kept[0]}, now=EXPIRED),
        ],
        "by two workers": [facts, done, take],
        "taken over": [rest, take, done, by(steps.supersede, now=EXPIRED)],
        "after a pause": [release, take],
        "failed": [fail, by(steps.retry, now=SOON), take],
        "failed for good": [fail, by(steps.supersede, now=EXPIRED)],
    }
    found: dict[str, list[Formation]] = {}
    for name, rules in told.items():
        found[name] = [formation]
        for rule in rules:
            after = rule(found[name][-1])
            assert after is not None, name
            found[name].append(after)
    return found


@pytest.mark.parametrize("name", LIVES)
def test_each_step_is_stored_and_read_whole(store: Store, name: str) -> None:
    """The stores disagreed in five of seven: stale errors and pauses, unknown formations."""
    session, messages = make_talk(store, 4)
    states = lives(claim(store, session, messages))[name]
    for before, after in itertools.pairwise(states):
        assert store.formations.move(before, after)
        assert stored(store, after) == after
        (listed,) = store.formations.list_formations(statuses=[after.status])
        assert listed == replace(after, changes=None)
        stale = {known.status for known in states if store.formations.move(known, after)}
        assert stale <= {after.status}  # the state itself, or a renewal of the same moment
        assert stored(store, after) == after
    left = store.formations.backlog(session.id, session.agents[0], limit=9)
    assert [each.id for each in left.messages] == [
        each.id for each in messages if each.id not in states[-1].message_ids
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": FormationStatus.RECORDED},
        {"worker": "worker-2"},
        {"lease_until": SOON},
        {"next_step": "reflections"},
        {"updated_at": SOON},
        {"id": new_id()},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_step_from_another_state_is_refused(store: Store, fields: dict[str, Any]) -> None:
    session, messages = make_talk(store, 4)
    formation = claim(store, session, messages)
    known = replace(formation, **fields)
    after = replace(known, error="late", message_ids=known.message_ids[:1])
    assert not store.formations.move(known, after)
    learned = outcome(session)
    assert store.formations.apply_formation(known, after, learned) is None
    assert stored(store, formation) == formation
    if isinstance(store, SqliteStore):  # elsewhere applying is not one transaction, but idempotent
        assert facts_of(store, Scope.user(session.agents[0], session.users[0])) == []


def test_a_failed_formation_is_retried_when_no_other_is_unfinished(store: Store) -> None:
    session, messages = make_talk(store)
    known = claim(store, session, messages[:4])
    failed = some(step(store.formations, known, steps.fail, "worker-1", SOON, error="x"))
    other = claim(store, session, messages[4:6], seq=2)
    assert step(store.formations, failed, steps.retry, now=SOON) is None
    assert stored(store, failed) == failed
    finish(store, other)
    assert step(store.formations, failed, steps.retry, now=SOON) is not None
    assert not store.formations.claim(make_formation(session, messages[6:], seq=3))


def test_a_step_brings_no_redacted_decision_back(store: Store) -> None:
    session, messages = make_talk(store, 4)
    half = some(record_facts(store, claim(store, session, messages), change_set()))
    mine = some(steps.apply(half, now=SOON, worker="worker-1"))
    assert store.formations.move(half, mine)
    passage = Passage(
        kind="formation", id=mine.id, target_type="formation", target_id=mine.id, text="x"
    )
    assert store.erasure.redact([passage], run=new_id()) == 1
    recorded = some(
        step(
            store.formations,
            mine,
            steps.record,
            "worker-1",
            SOON,
            changes=change_set(),
            decisions=(),
            usage=(),
            counts={},
        )
    )
    assert recorded.decisions == ()
    assert stored(store, recorded) == recorded


# -- record and apply ----------------------------------------------------------------------------


def test_a_recorded_outcome_is_applied_once(store: Store) -> None:
    """Known failure 16: a crash left an outcome applied in part, or twice."""
    session, messages = make_talk(store)
    formation, changes = claim(store, session, messages), outcome(session)
    scope = Scope.user(session.agents[0], session.users[0])
    assert record(store, formation, changes)
    results = Steps(store).apply(formation.id, now=SOON)
    assert [result.change_id for result in results] == [c.id for c in changes.changes]
    assert {result.status for result in results} == {ChangeStatus.APPLIED}
    done = stored(store, formation)
    assert (done.status, done.changes) == (FormationStatus.APPLIED, None)
    assert done.counts == {"facts": 2, "reflections": {"user": 1}}
    assert done.decisions == (DECISION,)
    assert done.usage == (USAGE,)
    assert {fact.content for fact in facts_of(store, scope)} == {"Anna sings.", "Anna keeps bees."}
    assert len(store.memory.pending(scope)) == 1

    before = list(store.log.audit()), store.database.info().counts
    again = Steps(store).apply(formation.id, now=EXPIRED)
    assert {result.status for result in again} <= {ChangeStatus.ALREADY}
    assert (list(store.log.audit()), store.database.info().counts) == before
    assert store.formations.backlog(session.id, session.agents[0], limit=9).total == 0


def record_facts(store: Store, formation: Formation, changes: ChangeSet) -> Formation | None:
    """Record the first of two steps."""
    return Steps(store).record(
        formation.id,
        changes=changes,
        decisions=[DECISION],
        usage=[USAGE],
        counts={"facts": 2},
        now=SOON,
        next_step="reflections",
    )


def test_narrowing_a_claim_frees_the_other_messages(store: Store) -> None:
    session, messages = make_talk(store)
    formation = claim(store, session, messages)
    kept = messages[:2]
    narrowing: dict[str, Any] = {
        "message_ids": [message.id for message in kept],
        "last_message_at": kept[-1].created_at,
        "now": SOON,
    }
    assert not Steps(store).narrow(formation.id, worker="worker-2", **narrowing)
    assert stored(store, formation).message_ids == formation.message_ids
    assert Steps(store).narrow(formation.id, worker="worker-1", **narrowing)
    narrowed = stored(store, formation)
    assert narrowed.message_ids == tuple(message.id for message in kept)
    assert narrowed.last_message_at == kept[-1].created_at
    backlog = store.formations.backlog(session.id, session.agents[0], limit=99)
    assert [each.id for each in backlog.messages] == [each.id for each in messages[2:]]
    finish(store, formation)
    claim(store, session, messages[2:], seq=2)
    if not isinstance(store, SqliteStore):  # a claim moved it, and it stays
        assert cursor_of(store, session.id) == messages[-1].id


def test_a_partly_applied_formation_is_completed(store: Store) -> None:
    """As after a crash: some of the changes have been applied."""
    session, messages = make_talk(store)
    formation, changes = claim(store, session, messages), outcome(session)
    assert record(store, formation, changes)
    store.changes.apply(msgspec.structs.replace(changes, changes=changes.changes[:2]))
    results = Steps(store).apply(formation.id, now=SOON)
    assert [result.status for result in results] == [
        ChangeStatus.ALREADY,
        ChangeStatus.ALREADY,
        ChangeStatus.APPLIED,
    ]
    assert stored(store, formation).status is FormationStatus.APPLIED


def test_applying_late_restores_nothing_removed(store: Store) -> None:
    session, messages = make_talk(store)
    formation, changes = claim(store, session, messages), outcome(session)
    assert record(store, formation, changes)
    Steps(store).apply(formation.id, now=SOON)
    scope = Scope.user(session.agents[0], session.users[0])
    for fact in facts_of(store, scope):
        applied(store, removal(fact, scope=scope, at=EXPIRED))
    Steps(store).apply(formation.id, now=EXPIRED)
    assert facts_of(store, scope) == []


# -- lists ---------------------------------------------------------------------------------------


def claim_three(store: Store, step: timedelta) -> tuple[Session, list[str]]:
    """A session with two finished formations and a claim, each made a step later."""
    session, messages = make_talk(store, 12)
    made = []
    for seq in range(1, 4):
        part = messages[4 * (seq - 1) : 4 * seq]
        formation = claim(store, session, part, seq=seq, now=NOW + seq * step)
        made.append(formation.id)
        if seq < 3:
            finish(store, formation)
    return session, made


def test_formations_are_listed_latest_first(store: Store) -> None:
    session, made = claim_three(store, timedelta(minutes=1))
    elsewhere, other_messages = make_talk(store)
    other = claim(store, elsewhere, other_messages, now=NOW + timedelta(hours=2))

    def ids(**named: object) -> list[str]:
        return [formation.id for formation in store.formations.list_formations(**named)]

    assert ids() == [other.id, *reversed(made)]
    assert ids(session_id=session.id) == made[::-1]
    assert ids(agent_id=elsewhere.agents[0]) == [other.id]
    assert ids(statuses=UNFINISHED) == [other.id, made[2]]
    assert ids(session_id=session.id, statuses=[FormationStatus.APPLIED]) == [made[1], made[0]]
    assert ids(limit=2) == [other.id, made[2]]
    assert ids(session_id=session.id, agent_id=elsewhere.agents[0]) == []


def test_formations_of_a_pair_are_ordered_despite_clock_skew(store: Store) -> None:
    session, made = claim_three(store, timedelta(hours=-1))  # each clock is behind the one before
    named = {"session_id": session.id, "agent_id": session.agents[0]}
    for narrow, expected in (
        ({}, made[::-1]),
        ({"limit": 1}, made[-1:]),
        ({"statuses": [FormationStatus.APPLIED]}, [made[1], made[0]]),
    ):
        found = store.formations.list_formations(**named, **narrow)
        assert [formation.id for formation in found] == expected
