"""The steps of a formation: which are possible, and what they leave."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from edenmem.memory import formations as steps
from edenmem.models.changes import AddFact
from edenmem.models.formation import CallUsage, Decision, Formation, FormationStatus, Trigger
from edenmem.models.scope import Scope
from tests.support.builders import (
    NOW,
    change_set,
    make_fact,
    make_formation,
    make_messages,
    make_session,
)

MINE, OTHER = "worker-1", "worker-2"
SOON = NOW + timedelta(minutes=1)
EXPIRED = NOW + timedelta(minutes=5)  # the builders' default lease has expired by then
UNTIL = NOW + timedelta(hours=1)
USAGE = CallUsage(task="facts", model="m", input_tokens=10)
DECISION = Decision(content="Anna sings.", action="ADD")
CHANGES = change_set(AddFact(fact=make_fact(Scope.user("a" * 24, "b" * 24), "Anna sings.")))
OUTCOME: dict[str, Any] = {
    "changes": CHANGES,
    "decisions": [DECISION],
    "usage": [USAGE],
    "counts": {"facts": 1},
}
SESSION = make_session()
IDS = tuple(message.id for message in make_messages(SESSION, 4))
CLAIMED = replace(
    make_formation(SESSION, make_messages(SESSION, 4)), message_ids=IDS, usage=(USAGE,), attempts=1
)

Rule = Callable[..., Formation | None]


def must(after: Formation | None) -> Formation:
    assert after is not None
    return after


RECORDED = must(steps.record(CLAIMED, MINE, SOON, **OUTCOME))
HALF = must(steps.record(CLAIMED, MINE, SOON, **OUTCOME, next_step="reflections"))
RELEASED = must(steps.release(CLAIMED, MINE, SOON, not_before=EXPIRED, error="429"))
FAILED = must(steps.fail(CLAIMED, MINE, SOON, error="nonsense"))
APPLIED = must(steps.apply(RECORDED, now=SOON))
SUPERSEDED = must(steps.supersede(APPLIED, now=SOON))
ALL = {each.status: each for each in (CLAIMED, RECORDED, RELEASED, FAILED, APPLIED, SUPERSEDED)}

take: Rule = partial(steps.claim, lease_until=UNTIL)
narrow: Rule = partial(steps.narrow, message_ids=IDS[:2], last_message_at=NOW)

#: Step → the states from which it is possible for the worker that has the formation.
POSSIBLE: dict[str, tuple[Rule, set[str]]] = {
    "claim": (lambda f: take(f, MINE, EXPIRED), {"claimed", "recorded", "released"}),
    "renew": (lambda f: steps.renew(f, MINE, lease_until=UNTIL), {"claimed", "recorded"}),
    "narrow": (lambda f: narrow(f, MINE, SOON), {"claimed"}),
    "record": (lambda f: steps.record(f, MINE, SOON, **OUTCOME), {"claimed"}),
    "apply": (lambda f: steps.apply(f, now=SOON), {"recorded"}),
    "release": (lambda f: steps.release(f, MINE, SOON), {"claimed"}),
    "fail": (lambda f: steps.fail(f, MINE, SOON, error="no"), {"claimed"}),
    "retry": (lambda f: steps.retry(f, now=SOON), {"failed"}),
    "supersede": (lambda f: steps.supersede(f, now=SOON), {"applied", "failed"}),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_step_is_possible_from_its_states_only(name: str) -> None:
    rule, possible = POSSIBLE[name]
    assert {status.value for status, each in ALL.items() if rule(each) is not None} == possible


def test_only_the_holder_goes_on() -> None:
    for rule in (narrow, partial(steps.record, **OUTCOME), steps.release):
        assert rule(CLAIMED, OTHER, SOON) is None
    assert steps.fail(CLAIMED, OTHER, SOON, error="no") is None
    assert steps.renew(CLAIMED, OTHER, lease_until=UNTIL) is None


@pytest.mark.parametrize("held", [CLAIMED, RECORDED], ids=["claimed", "recorded"])
def test_a_lease_keeps_others_away_until_it_expires(held: Formation) -> None:
    early = EXPIRED - timedelta(milliseconds=1)
    assert take(held, OTHER, early, trigger=Trigger.FORCED) is None
    taken = must(take(held, OTHER, EXPIRED))
    assert taken == replace(held, worker=OTHER, lease_until=UNTIL, updated_at=EXPIRED)
    assert must(take(held, MINE, SOON)).lease_until == UNTIL
    assert steps.is_free(held, early) is (held is RECORDED)  # any worker may apply what is recorded
    assert steps.is_free(held, EXPIRED)
    renewed = must(steps.renew(held, MINE, lease_until=UNTIL))
    assert renewed == replace(held, lease_until=UNTIL)
    assert take(renewed, OTHER, EXPIRED) is None


def test_what_was_released_waits_until_due_or_forced() -> None:
    early = EXPIRED - timedelta(milliseconds=1)
    assert take(RELEASED, MINE, early) is None
    assert not steps.is_free(RELEASED, early)
    assert steps.is_free(RELEASED, early, forced=True)
    for taken in (
        take(RELEASED, OTHER, early, trigger=Trigger.FORCED),
        take(RELEASED, OTHER, EXPIRED),
    ):
        found = must(taken)
        assert (found.status, found.worker) == (FormationStatus.CLAIMED, OTHER)
        assert (found.not_before, found.error, found.attempts) == (None, "429", 2)
    assert take(replace(RELEASED, not_before=None), OTHER, SOON) is not None


def test_a_claim_is_given_back_with_its_cost() -> None:
    assert (
        replace(
            CLAIMED,
            status=FormationStatus.RELEASED,
            worker=None,
            lease_until=None,
            not_before=EXPIRED,
            error="429",
            attempts=2,
            updated_at=SOON,
        )
        == RELEASED
    )
    assert must(steps.release(CLAIMED, MINE, SOON, count=False)).attempts == 1
    failed = must(steps.fail(CLAIMED, MINE, SOON, error="429", usage=[USAGE]))
    assert failed == replace(
        RELEASED, status=FormationStatus.FAILED, not_before=None, usage=(USAGE, USAGE)
    )
    again = must(steps.retry(failed, now=EXPIRED))
    assert again == replace(failed, status=FormationStatus.RELEASED, attempts=0, updated_at=EXPIRED)


def test_an_outcome_is_added_to_that_of_earlier_steps() -> None:
    known = replace(CLAIMED, decisions=(DECISION,), error="before", counts={"facts": 9})
    recorded = must(steps.record(known, MINE, SOON, **OUTCOME))
    assert recorded == replace(
        known,
        status=FormationStatus.RECORDED,
        changes=CHANGES,
        decisions=(DECISION, DECISION),
        usage=(USAGE, USAGE),
        counts={"facts": 1},
        error=None,
        updated_at=SOON,
    )
    assert (HALF.attempts, HALF.next_step) == (0, "reflections")


def test_an_applied_step_leaves_the_next_to_its_worker_or_to_all() -> None:
    assert (
        replace(
            RECORDED, status=FormationStatus.APPLIED, changes=None, worker=None, lease_until=None
        )
        == APPLIED
    )
    mine = must(steps.apply(HALF, now=SOON, worker=MINE))
    assert mine == replace(HALF, status=FormationStatus.CLAIMED, changes=None)
    for worker in (None, OTHER):
        left = must(steps.apply(HALF, now=SOON, worker=worker))
        assert (left.status, left.worker, left.lease_until) == (
            FormationStatus.RELEASED,
            None,
            None,
        )
        assert (left.changes, left.next_step) == (None, "reflections")
    noted = replace(RECORDED, error="gave up")
    assert must(steps.apply(noted, now=SOON)).error is None


def test_narrowing_keeps_the_rest_of_the_claim() -> None:
    narrowed = must(narrow(CLAIMED, MINE, SOON))
    assert narrowed == replace(CLAIMED, message_ids=IDS[:2], last_message_at=NOW, updated_at=SOON)


def test_superseding_frees_what_is_not_kept() -> None:
    half = replace(FAILED, next_step="reflections")
    freed = must(steps.supersede(half, keep={IDS[1], "elsewhere"}, now=EXPIRED))
    assert freed == replace(
        half,
        status=FormationStatus.SUPERSEDED,
        message_ids=IDS[1:2],
        superseded_message_ids=IDS,
        next_step="",
        updated_at=EXPIRED,
    )
    assert steps.supersede(APPLIED, keep=set(IDS), now=SOON) is None
