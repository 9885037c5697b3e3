"""The steps of a formation from one state to the next; see `edenmem.models.formation`.

Each function returns the next state, or None if the step is not possible. A store replaces the one
state by the other, unless another worker was faster (`Formations.move`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from edenmem.models.changes import ChangeSet
from edenmem.models.formation import CallUsage, Decision, Formation, FormationStatus, Trigger
from edenmem.models.host import Message
from edenmem.models.ids import new_id

_HELD = (FormationStatus.CLAIMED, FormationStatus.RECORDED)
_FINISHED = (FormationStatus.APPLIED, FormationStatus.FAILED)

#: The fields that decide whether a step is possible. Each step but a renewal sets ``updated_at``.
DECIDING = (
    "status",
    "worker",
    "lease_until",
    "next_step",
    "updated_at",
    "superseded_message_ids",
)


def is_free(formation: Formation, now: datetime, *, forced: bool = False) -> bool:
    """Return whether an unfinished formation may be continued.

    What is recorded may be applied by any worker. ``forced`` skips the pause after a failed
    attempt, but not another worker's lease.
    """
    match formation.status:
        case FormationStatus.RELEASED:
            return forced or formation.not_before is None or formation.not_before <= now
        case FormationStatus.CLAIMED:
            return _is_expired(formation, now)
        case _:
            return True


def claim(
    formation: Formation,
    worker: str,
    now: datetime,
    *,
    lease_until: datetime,
    trigger: Trigger | None = None,
) -> Formation | None:
    """Take over a formation: a released one that is due, or one of an expired lease or one's own.

    What is recorded stays so. With the ``trigger`` of a proposal the rest becomes one.
    """
    forced = trigger is not None and trigger.forced
    if formation.status in _HELD:
        is_possible = formation.worker == worker or _is_expired(formation, now)
    else:
        is_released = formation.status is FormationStatus.RELEASED
        is_possible = is_released and is_free(formation, now, forced=forced)
    if not is_possible:
        return None
    is_recorded = formation.status is FormationStatus.RECORDED
    return replace(
        formation,
        status=FormationStatus.RECORDED if is_recorded else FormationStatus.CLAIMED,
        worker=worker,
        lease_until=lease_until,
        not_before=None,
        trigger=trigger if trigger is Trigger.PROPOSED else formation.trigger,
        updated_at=now,
    )


def renew(formation: Formation, worker: str, *, lease_until: datetime) -> Formation | None:
    """Extend the worker's lease."""
    if formation.status not in _HELD or formation.worker != worker:
        return None
    return replace(formation, lease_until=lease_until)


def narrow(
    formation: Formation,
    worker: str,
    now: datetime,
    *,
    message_ids: Sequence[str],
    last_message_at: datetime,
) -> Formation | None:
    """Reduce a claim to these messages; the others are pending again."""
    if not _is_claimed_by(formation, worker):
        return None
    return replace(
        formation,
        message_ids=tuple(message_ids),
        last_message_at=last_message_at,
        updated_at=now,
    )


def record(
    formation: Formation,
    worker: str,
    now: datetime,
    *,
    changes: ChangeSet,
    decisions: Sequence[Decision],
    usage: Sequence[CallUsage],
    counts: Mapping[str, Any],
    next_step: str = "",
) -> Formation | None:
    """Record the outcome of a step, and the next step if one is left.

    ``decisions`` and ``usage`` are added to those of earlier steps; ``counts`` replace them. The
    next step starts with no failed attempts.
    """
    if not _is_claimed_by(formation, worker):
        return None
    return replace(
        formation,
        status=FormationStatus.RECORDED,
        changes=changes,
        decisions=(*formation.decisions, *decisions),
        usage=(*formation.usage, *usage),
        counts=dict(counts),
        next_step=next_step,
        attempts=0 if next_step else formation.attempts,
        error=None,
        updated_at=now,
    )


def apply(formation: Formation, *, now: datetime, worker: str | None = None) -> Formation | None:
    """Finish a recorded step. If another is left, ``worker`` keeps its claim; else it is free."""
    if formation.status is not FormationStatus.RECORDED:
        return None
    done = replace(formation, changes=None, error=None, updated_at=now)
    if not formation.next_step:
        return _let_go(done, FormationStatus.APPLIED)
    if worker is not None and worker == formation.worker:
        return replace(done, status=FormationStatus.CLAIMED)
    return _let_go(done, FormationStatus.RELEASED)


def release(
    formation: Formation,
    worker: str,
    now: datetime,
    *,
    not_before: datetime | None = None,
    error: str | None = None,
    count: bool = True,
    usage: Sequence[CallUsage] = (),
) -> Formation | None:
    """Give a claim back; ``count`` adds a failed attempt."""
    if not _is_claimed_by(formation, worker):
        return None
    given_back = replace(
        formation,
        error=error,
        attempts=formation.attempts + int(count),
        usage=(*formation.usage, *usage),
        updated_at=now,
    )
    return _let_go(given_back, FormationStatus.RELEASED, not_before)


def fail(
    formation: Formation,
    worker: str,
    now: datetime,
    *,
    error: str,
    usage: Sequence[CallUsage] = (),
) -> Formation | None:
    """Give a claim up after its last attempt: listed, but not retried automatically."""
    given_back = release(formation, worker, now, error=error, usage=usage)
    return given_back and replace(given_back, status=FormationStatus.FAILED)


def retry(formation: Formation, *, now: datetime) -> Formation | None:
    """Release a failed formation with its attempts reset."""
    if formation.status is not FormationStatus.FAILED:
        return None
    return replace(formation, status=FormationStatus.RELEASED, attempts=0, updated_at=now)


def supersede(
    formation: Formation, *, keep: Set[str] = frozenset(), now: datetime
) -> Formation | None:
    """Free the messages of a finished formation, except those in ``keep``."""
    kept = tuple(each for each in formation.message_ids if each in keep)
    if formation.status not in _FINISHED or len(kept) == len(formation.message_ids):
        return None
    return replace(
        formation,
        status=FormationStatus.SUPERSEDED,
        message_ids=kept,
        superseded_message_ids=formation.message_ids,
        next_step="",
        updated_at=now,
    )


def is_settled(formation: Formation) -> bool:
    """Return whether a formation is over, and has no content."""
    return (
        formation.status in (FormationStatus.APPLIED, FormationStatus.SUPERSEDED)
        and not formation.decisions
        and formation.error is None
    )


def settle(formation: Formation, mine: Set[str] | None, now: datetime) -> Formation:
    """End and empty a formation that is not recorded, since its messages are to be forgotten.

    If only some are (``mine``), the others in a revoked claim are pending again.
    """
    is_under_way = formation.status not in (FormationStatus.APPLIED, FormationStatus.SUPERSEDED)
    ids = formation.message_ids
    if mine is not None and is_under_way:
        ids = tuple(each for each in ids if each in mine)
    status = FormationStatus.APPLIED if is_under_way else formation.status
    done = replace(
        formation, message_ids=ids, decisions=(), error=None, next_step="", updated_at=now
    )
    return _let_go(done, status)


def finished_record(
    session_id: str, agent_id: str, seq: int, messages: Sequence[Message], now: datetime
) -> Formation:
    """Return a finished formation without content, so that these messages are never formed."""
    return Formation(
        id=new_id(now),
        session_id=session_id,
        agent_id=agent_id,
        seq=seq,
        status=FormationStatus.APPLIED,
        trigger=Trigger.FORCED,
        message_ids=tuple(message.id for message in messages),
        last_message_at=messages[-1].created_at,
        created_at=now,
        updated_at=now,
    )


def proof_record(
    session_id: str, agent_id: str, seq: int, message_ids: Sequence[str], now: datetime
) -> Formation:
    """Return a new record of messages that the platform read."""
    return Formation(
        id=new_id(now),
        session_id=session_id,
        agent_id=agent_id,
        seq=seq,
        status=FormationStatus.SUPERSEDED,
        trigger=Trigger.PLATFORM,
        message_ids=(),
        superseded_message_ids=tuple(message_ids),
        last_message_at=now,
        created_at=now,
        updated_at=now,
    )


def note(formation: Formation, message_ids: Sequence[str], now: datetime) -> Formation | None:
    """Add messages to a record of what the platform read; None if it has them all."""
    known = formation.superseded_message_ids
    ids = tuple(dict.fromkeys((*known, *message_ids)))
    return None if ids == known else replace(formation, superseded_message_ids=ids, updated_at=now)


def drop(formation: Formation, message_ids: Set[str], now: datetime) -> Formation | None:
    """Remove messages from a record of what the platform read; None if it has none of them."""
    known = formation.superseded_message_ids
    ids = tuple(each for each in known if each not in message_ids)
    return None if ids == known else replace(formation, superseded_message_ids=ids, updated_at=now)


def _is_expired(formation: Formation, now: datetime) -> bool:
    return formation.lease_until is None or formation.lease_until <= now


def _is_claimed_by(formation: Formation, worker: str) -> bool:
    return formation.status is FormationStatus.CLAIMED and formation.worker == worker


def _let_go(
    formation: Formation, status: FormationStatus, not_before: datetime | None = None
) -> Formation:
    return replace(formation, status=status, worker=None, lease_until=None, not_before=not_before)
