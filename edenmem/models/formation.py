"""A formation of one range of a session's messages.

One document holds the claim, the write-ahead record and the result::

    claimed ──> recorded ──> applied
       │  │        └─────> claimed, or released (another step is left: ``next_step``) …
       │  └───> released (retried after ``not_before``) ──> claimed …
       └──────> failed   (kept, listed, retried by hand)
    applied or failed ──> superseded (its messages are formed again)

Facts and reflections are two steps. Facts are recorded and applied first, and ``next_step`` is the
remaining step, so that a failure of this step neither loses the facts nor requires a second call.

A session and agent have at most one claimed, recorded or released formation, and a message is in at
most one formation of an agent; the store enforces both. A superseded formation is kept only for the
record.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeGuard

import msgspec

from edenmem.models.changes import ChangeSet

#: Time for the platform to store what it read, after its cursor passed the messages. Its own
#: time-out is ten minutes.
PROOF_WAIT = timedelta(minutes=15)


class FormationStatus(StrEnum):
    """The state of a formation."""

    CLAIMED = "claimed"
    RELEASED = "released"
    RECORDED = "recorded"
    APPLIED = "applied"
    FAILED = "failed"
    SUPERSEDED = "superseded"


#: States that block a new formation.
UNFINISHED = (FormationStatus.CLAIMED, FormationStatus.RELEASED, FormationStatus.RECORDED)


class Trigger(StrEnum):
    """The reason of a formation.

    PLATFORM marks a record of messages that the platform read (``superseded_message_ids``), which
    outlives the platform's facts and reflections. It is no formation of edenmem. All that a
    PROPOSED one forms waits for review.
    """

    THRESHOLD = "threshold"
    FORCED = "forced"
    SESSION_END = "session_end"
    COLD = "cold"
    PLATFORM = "platform"
    PROPOSED = "proposed"

    @property
    def forced(self) -> bool:
        """Check whether a person asked for the formation."""
        return self in (Trigger.FORCED, Trigger.PROPOSED)


class Reach(StrEnum):
    """The messages of a session to form for an agent, except those in unfinished formations.

    WAITING: messages read by neither edenmem nor the platform. INCLUDE_FORMED: also those that
    the platform read. AGAIN: also those that edenmem formed, or failed to form. FROM_START: all.
    """

    WAITING = "waiting"
    INCLUDE_FORMED = "include_formed"
    AGAIN = "again"
    FROM_START = "from_start"

    @property
    def platform(self) -> bool:
        """Check whether messages read by the platform are included."""
        return self in (Reach.INCLUDE_FORMED, Reach.FROM_START)

    @property
    def own(self) -> bool:
        """Check whether messages formed by edenmem are included."""
        return self in (Reach.AGAIN, Reach.FROM_START)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Irregular readings of a session's messages, for one agent.

    ``unread`` counts messages that the platform's cursor has passed and that nothing has read,
    ``twice`` those that edenmem and the platform have read.
    """

    session_id: str
    agent_id: str
    unread: int = 0
    twice: int = 0


#: The first integer that some JSON parsers cannot represent exactly.
COUNT_END = 2**53


def is_count(value: object) -> TypeGuard[int]:
    """Check whether a value of a provider is a valid token count."""
    return type(value) is int and 0 <= value < COUNT_END


class CallUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a provider, with tokens, and the cost in US dollars if known.

    ``estimated``: the provider gave no valid token count, or the call was cancelled.
    """

    task: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    estimated: bool = False


def calls_from(stored: object) -> tuple[CallUsage, ...]:
    """Read the calls of a document; invalid counts become 0, and estimated."""
    items = stored if isinstance(stored, list | tuple) else ()
    return tuple(_call_from(item) for item in items)


def _call_from(item: object) -> CallUsage:
    sound = _sound_call(item)
    if sound is not None:
        return sound
    fields = item if isinstance(item, dict) else {}
    cost = fields.get("cost")
    return CallUsage(
        task=_text(fields.get("task")),
        model=_text(fields.get("model")),
        input_tokens=_count(fields.get("input_tokens")),
        output_tokens=_count(fields.get("output_tokens")),
        cost=float(cost) if _is_amount(cost) else None,
        estimated=True,
    )


def _sound_call(item: object) -> CallUsage | None:
    try:
        call = msgspec.convert(item, CallUsage)
    except msgspec.ValidationError:
        return None
    counted = is_count(call.input_tokens) and is_count(call.output_tokens)
    return call if counted and (call.cost is None or _is_amount(call.cost)) else None


def _is_amount(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 <= value < COUNT_END  # type: ignore[operator]


def _count(value: object) -> int:
    return value if is_count(value) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


class UsageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of work without a formation record.

    ``work``: "consolidation", "propagation", "recall", or "formation" if its claim was lost.
    Entries hold no user, so that forgetting can ignore them.
    """

    id: str
    at: datetime
    agent_id: str
    work: str
    calls: tuple[CallUsage, ...]


class UsageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Summed calls of one model.

    ``cost`` is in US dollars, without the ``unpriced`` calls. ``estimated`` counts the calls
    without a token count of the provider.
    """

    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    estimated: int = 0


#: The action of an item in doubt that waits for review.
HELD = "HELD"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about one item of a model, with its reason.

    ``rule`` is the acceptance rule that rejected the item; several are joined by commas.
    ``unconfirmed`` is that of the stored fact (see `edenmem.models.memory.Fact`), or the reasons
    of a held item. ``failure`` is
    the message of an error that kept a model from verifying the item; it may name the address of
    the model.
    """

    content: str
    action: str
    target_id: str | None = None
    reason: str = ""
    rule: str = ""
    unconfirmed: str = ""
    failure: str = ""

    @property
    def is_marked(self) -> bool:
        """Return whether the item was stored as unconfirmed."""
        return bool(self.unconfirmed) and self.action != HELD

    @property
    def explanation(self) -> str:
        """Return the reason with the message of an error, for operators."""
        return f"{self.reason}: {self.failure}" if self.failure else self.reason


class Formation(msgspec.Struct, frozen=True, kw_only=True):
    """A formation; see the module. ``changes`` is set while recorded, and dropped when applied.

    ``next_step`` is the remaining step ("reflections"), "" before the first and after the last
    one. ``decisions``, ``usage`` and ``counts`` cover all steps. ``attempts`` counts failed
    attempts of a step. ``last_message_at`` is the ``createdAt`` of the last message. ``counts`` are
    numbers of formed items for lists ("facts", "reflections", …). ``superseded_message_ids`` are
    all messages of a superseded formation, ``message_ids`` those among them that must not be formed
    again.
    """

    id: str
    session_id: str
    agent_id: str
    seq: int
    status: FormationStatus
    trigger: Trigger
    message_ids: tuple[str, ...]
    last_message_at: datetime
    created_at: datetime
    updated_at: datetime
    worker: str | None = None
    lease_until: datetime | None = None
    not_before: datetime | None = None
    attempts: int = 0
    error: str | None = None
    decisions: tuple[Decision, ...] = ()
    usage: tuple[CallUsage, ...] = ()
    counts: dict[str, Any] = msgspec.field(default_factory=dict)
    changes: ChangeSet | None = None
    superseded_message_ids: tuple[str, ...] = ()
    next_step: str = ""
