"""A formation: one range of a session's messages, from its claim to its effect on memory.

It is the claim, the write-ahead record and the result in one document::

    claimed ──> recorded ──> applied
       │  │        └─────> claimed, or released (a step is left: ``next_step``) …
       │  └───> released (tried again after ``not_before``) ──> claimed …
       └──────> failed   (kept, listed, retried by hand)
    applied or failed ──> superseded (its messages are to be formed again)

Facts and reflections are two steps. The facts are recorded and applied first, with ``next_step``
naming what is left, so that a later step that fails neither loses them nor pays for them again.

At most one formation of a session and agent is claimed, recorded or released at a time, and no
message is in two formations of one agent; the store refuses whatever would break either rule. A
superseded formation no longer counts: it keeps what it was for the record.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, TypeGuard

import msgspec

from edenmem.models.changes import ChangeSet


class FormationStatus(StrEnum):
    """Where a formation stands."""

    CLAIMED = "claimed"
    RELEASED = "released"
    RECORDED = "recorded"
    APPLIED = "applied"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class Trigger(StrEnum):
    """Why a formation was begun."""

    THRESHOLD = "threshold"
    FORCED = "forced"
    SESSION_END = "session_end"
    COLD = "cold"


class Reach(StrEnum):
    """Which messages of a session to form for an agent, apart from those in unfinished formations.

    WAITING: those that neither edenmem nor the platform formed. INCLUDE_FORMED: also those that the
    platform formed. AGAIN: also those that edenmem formed, or failed to. FROM_START: all of them.
    """

    WAITING = "waiting"
    INCLUDE_FORMED = "include_formed"
    AGAIN = "again"
    FROM_START = "from_start"

    @property
    def platform(self) -> bool:
        """Whether messages that the platform formed are taken."""
        return self in (Reach.INCLUDE_FORMED, Reach.FROM_START)

    @property
    def own(self) -> bool:
        """Whether messages that edenmem formed are taken."""
        return self in (Reach.AGAIN, Reach.FROM_START)


class CursorMove(msgspec.Struct, frozen=True, kw_only=True):
    """A move of the session's ``last_memory_message_id`` by edenmem: ``to`` which message, and the
    cursor that it ``replaced``."""

    to: str
    replaced: str | None = None


#: The first number that not every reader of JSON holds exactly.
COUNT_END = 2**53


def is_count(value: object) -> TypeGuard[int]:
    """Whether this can be a number of tokens; what a provider says can be anything."""
    return type(value) is int and 0 <= value < COUNT_END


class CallUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a provider: the task, the model, tokens, and the price in US dollars if known.

    ``estimated``: the provider did not count the tokens, or nonsense, or was not waited for.
    """

    task: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    estimated: bool = False


def calls_from(stored: object) -> tuple[CallUsage, ...]:
    """The calls that a document holds, whatever is in it: what is no count is 0, and estimated.

    Older versions wrote down whatever an endpoint called a count.
    """
    items = stored if isinstance(stored, list | tuple) else ()
    return tuple(_call_from(item) for item in items)


def is_damaged_usage(stored: object) -> bool:
    """Whether `calls_from` has to leave something out or put something in its place."""
    if not isinstance(stored, list | tuple):
        return stored is not None
    return any(_sound_call(item) is None for item in stored)


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
    """What work cost that no formation's record has: ``work`` says which ("consolidation",
    "propagation", "recall", or "formation" if its claim was lost meanwhile). It names no user, so
    that nothing of a person is left in it."""

    id: str
    at: datetime
    agent_id: str
    work: str
    calls: tuple[CallUsage, ...]


class UsageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one model, added up. ``cost`` is in US dollars, and leaves out the ``unpriced``
    calls, of which no price is known. ``estimated`` are the calls whose tokens nobody counted."""

    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    estimated: int = 0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one item that a model wrote, and why.

    ``rule`` names the rule of acceptance that rejected it; several are joined by commas.
    ``weak``: the fact that was kept is (see `edenmem.models.memory.Fact`).
    """

    content: str
    action: str
    target_id: str | None = None
    reason: str = ""
    rule: str = ""
    weak: bool = False


class Formation(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. ``changes`` is present while recorded, and dropped once applied.

    ``next_step`` is the step to take after those that are recorded or in memory ("reflections"),
    "" if none was taken yet or none is left. ``decisions``, ``usage`` and ``counts`` are those of
    all steps. ``attempts`` counts failed tries of a step. ``last_message_at`` is the ``createdAt``
    of the last message. ``counts`` holds numbers of what was formed, for lists ("facts",
    "reflections", …).
    ``cursor_moves`` says how it moved the platform's cursor (see
    `edenmem.store.common.progress`), None if that is not known. ``superseded_message_ids`` are
    the messages that a superseded formation had,
    and ``message_ids`` those among them that must not be formed again.
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
    cursor_moves: tuple[CursorMove, ...] | None = None
    superseded_message_ids: tuple[str, ...] = ()
    next_step: str = ""
