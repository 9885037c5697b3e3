"""Concurrent workers on one formation: one of them gets it, and nothing is applied twice."""

from __future__ import annotations

from datetime import timedelta

from edenmem.models.changes import AddFact, AddReflection, ChangeStatus
from edenmem.models.formation import FormationStatus
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.store.contract.test_formation import make_talk
from tests.support.builders import (
    NOW,
    change_set,
    make_fact,
    make_formation,
    make_reflection,
    some,
)
from tests.support.formations import Steps
from tests.support.memory import at_once, facts_of

WORKERS = 8
EXPIRED = NOW + timedelta(hours=1)


def test_of_many_claims_of_one_range_one_wins(store: Store) -> None:
    """Known failure 14: separate read and write gave one claim to two workers."""
    session, messages = make_talk(store, 12)
    claims = [make_formation(session, messages, worker=f"w{n}") for n in range(WORKERS)]
    won = at_once(WORKERS, lambda n: store.formations.claim(claims[n]))
    assert won.count(True) == 1
    (formation,) = store.formations.list_formations(session_id=session.id)
    assert formation == claims[won.index(True)]


def test_of_many_claims_that_overlap_one_wins(store: Store) -> None:
    session, messages = make_talk(store, 12)
    claims = [
        make_formation(session, messages[n : n + 4], seq=n + 1, worker=f"w{n}")
        for n in range(WORKERS)
    ]
    won = at_once(WORKERS, lambda n: store.formations.claim(claims[n]))
    assert won.count(True) == 1
    assert store.formations.backlog(session.id, session.agents[0], limit=99).total == 8


def test_claims_of_different_agents_all_win(store: Store) -> None:
    session, messages = make_talk(store, 12)
    agents = [new_id() for _ in range(WORKERS)]
    claims = [make_formation(session, messages, agent_id=agent) for agent in agents]
    assert all(at_once(WORKERS, lambda n: store.formations.claim(claims[n])))
    assert len(list(store.formations.list_formations(session_id=session.id))) == WORKERS


def test_an_expired_claim_is_taken_over_by_one(store: Store) -> None:
    session, messages = make_talk(store, 12)
    formation = make_formation(session, messages, worker="dead")
    assert store.formations.claim(formation)
    taken = at_once(
        WORKERS,
        lambda n: Steps(store).claim(
            formation.id,
            worker=f"w{n}",
            now=EXPIRED,
            lease_until=EXPIRED + timedelta(minutes=5),
        ),
    )
    winners = [n for n, one in enumerate(taken) if one is not None]
    assert len(winners) == 1
    stored = some(store.formations.formation(formation.id))
    assert stored.worker == f"w{winners[0]}"


def test_a_recorded_outcome_applied_by_many_is_applied_once(store: Store) -> None:
    session, messages = make_talk(store, 12)
    formation = make_formation(session, messages)
    assert store.formations.claim(formation)
    scope = Scope.user(session.agents[0], session.users[0])
    changes = change_set(
        *(AddFact(fact=make_fact(scope, f"fact {n}")) for n in range(5)),
        *(
            AddReflection(reflection=make_reflection(scope, f"thought {n}"), word_limit=300)
            for n in range(5)
        ),
    )
    assert Steps(store).record(formation.id, changes=changes)
    results = at_once(WORKERS, lambda _: Steps(store).apply(formation.id, now=NOW))
    for each in results:
        assert {r.status for r in each} <= {ChangeStatus.APPLIED, ChangeStatus.ALREADY}
    assert len(facts_of(store, scope)) == 5
    assert len(store.memory.pending(scope)) == 5
    text = store.memory.consolidations([scope])[scope]
    assert len(text.unabsorbed_ids) == 5
    stored = some(store.formations.formation(formation.id))
    assert stored.status is FormationStatus.APPLIED
    assert len(list(store.log.audit(agent_id=scope.agent_id))) == 10


def test_one_worker_records_while_another_takes_over(store: Store) -> None:
    """The second worker is refused; the outcome is that of the holder."""
    session, messages = make_talk(store, 12)
    formation = make_formation(session, messages, worker="slow")
    assert store.formations.claim(formation)

    def work(number: int) -> bool:
        if number == 0:
            return Steps(store).record(formation.id, worker="slow", now=EXPIRED)
        taken = Steps(store).claim(
            formation.id, worker="quick", now=EXPIRED, lease_until=EXPIRED + timedelta(hours=1)
        )
        return taken is not None and taken.status is FormationStatus.CLAIMED

    recorded, taken_unrecorded = at_once(2, work)
    assert recorded != taken_unrecorded
    stored = some(store.formations.formation(formation.id))
    wanted = FormationStatus.RECORDED if recorded else FormationStatus.CLAIMED
    assert stored.status is wanted
