"""Decide what a run does for a target, by three digests: base, v1 now, and v2 now.

The *base* is what runs wrote, unless it was undone, according to the log. What v1 has not changed
since is not written again, even if it was edited, deleted, merged or expired here. What v1 has
changed is followed if v2 still has the base, else v2 is kept and named. Without a base, equal
content is adopted, an empty place is filled, and anything else is kept and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.engine.migration.comparison import State, read_after
from edenmem.engine.migration.items import (
    ABSORBED_LATER,
    REPLACED_LATER,
    Treatment,
    format_sources,
    key_of_item,
    reason_of,
    settings_of,
    text_of,
)
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.v1 import Memory, Outcome, V1Item

OnConflict = Literal["keep", "replace"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do for an item: changes in order, and the outcome if they succeed."""

    outcome: Outcome
    changes: Sequence[Change] = ()
    treatment: Treatment | None = None
    detail: str = ""


def decide(state: State, on_conflict: OnConflict, at: datetime) -> Decision:
    """Decide on one item.

    Args:
        state: What v1, v2 and the log have of the item.
        on_conflict: The treatment of a text that no run wrote.
        at: The time of changes.
    """
    if state.is_erased:
        return Decision(outcome=Outcome.LEFT_BEHIND, detail="it or its owner was erased here")
    if state.written and state.base is None:
        return _ALREADY  # a run wrote it, and it was erased since
    match state.item.memory:
        case Fact() as fact:
            return _decide_fact(state, fact, at)
        case Consolidation() as text:
            return _decide_text(state, text, on_conflict, at)
        case Reflection() | Policy() as new:
            return _decide_other(state, new, at)
    return _decide_switch(state, at)


def _decide_fact(state: State, new: Fact, at: datetime) -> Decision:
    base, now = state.base, state.now
    known = now if base is None else base
    if known is None:
        return _fill(state, new, at)
    users = _beyond(new.related_users, known.related_users)
    # An adopted fact keeps its own sources; 'forget' needs its related users.
    sources = () if base is None else _beyond(new.source_message_ids, known.source_message_ids)
    if not users and not sources:
        return _ALREADY
    if now is None or now.content != new.content:
        return _keep("changed here since its migration, and in v1")
    change = ReviseFact(
        reason=reason_of(state.item),
        scope=now.home,
        fact_id=now.id,
        expected_version=now.version,
        content=now.content,
        at=at,
        related_users=users,
        source_message_ids=sources,
        times=now.times,
    )
    outcome = Outcome.ALREADY if base is None else state.item.outcome
    return Decision(outcome=outcome, changes=[change])


def _decide_other(state: State, new: Reflection | Policy, at: datetime) -> Decision:
    """Decide on a reflection or policy."""
    base, now = state.base, state.now
    if base is None and now is None:
        return _fill(state, new, at)
    if _core(new) in (_core(base), _core(now)):
        return _ALREADY
    type = key_of_item(state.item).type
    if base is None:
        return _keep(f"v2 has another {type}, which was kept")
    if _core(now) != _core(base) or (isinstance(now, Reflection) and now.absorbed):
        return _keep("changed or consolidated here since its migration, and changed in v1")
    change: Change
    if isinstance(new, Policy):
        change = WritePolicy(
            reason=reason_of(state.item),
            policy=msgspec.structs.replace(now, **settings_of(new)),
            expected_version=now.version,
            at=at,
        )
    else:
        change = ReviseReflection(
            reason=reason_of(state.item),
            scope=now.home,
            reflection_id=now.id,
            expected_version=now.version,
            content=new.content,
            at=at,
        )
    return _follow(state.item, [change], f"v1 has changed the {type}")


def _decide_text(
    state: State, new: Consolidation, on_conflict: OnConflict, at: datetime
) -> Decision:
    base, now, item = state.base, state.now, state.item
    own, content = text_of(now), text_of(new)
    if own == content:
        return _absorb(state, new, at)
    texts = {each.consolidated_content for each in map(read_after, state.written) if each}
    detail, treatment = "v1 has a newer text", Treatment.FOLLOWED
    if base is not None:
        if text_of(base) == content:
            return _ALREADY
        if base.updated_at and new.updated_at and new.updated_at < base.updated_at:
            if new.consolidated_content in texts:
                return _ALREADY
            return _keep("v2 has a newer v1 text, which was kept")
        if own != text_of(base):
            return _keep("edited since its migration; v1's newer text was not used")
    elif own and on_conflict == "keep":
        return _keep("v2 has another text, which was kept")
    elif own:
        detail, treatment = "v2 had another text (replace)", Treatment.REPLACED
    changes: list[Change] = []
    version = now.version if now is not None else 0
    for old in item.earlier:
        if old.content not in texts:
            step = WriteConsolidation(
                reason=f"from {format_sources((old.source,))}; {REPLACED_LATER}",
                scope=new.home,
                expected_version=version,
                as_version=old.version,
                content=old.content,
                word_limit=new.word_limit,
                at=old.at,
            )
            changes.append(step)
            version = step.next_version
    absorbed = tuple(each.id for each in state.absorbed)
    last = write_of(new, reason=reason_of(item), at=at, version=version)
    changes.append(msgspec.structs.replace(last, absorbed_ids=absorbed))
    if base is None and not own:
        return Decision(outcome=item.outcome, changes=changes)
    return Decision(outcome=item.outcome, changes=changes, treatment=treatment, detail=detail)


def _absorb(state: State, new: Consolidation, at: datetime) -> Decision:
    """Mark reflections as absorbed that v1 no longer lists, though its text is unchanged."""
    item, now, absorbed = state.item, state.now, state.absorbed
    if not absorbed:
        return _ALREADY
    change = WriteConsolidation(
        reason=f"from {format_sources(item.sources)}; {ABSORBED_LATER}",
        scope=new.home,
        expected_version=now.version,
        content=now.consolidated_content,
        word_limit=now.word_limit,
        # Later v1 texts are newer than all memories that this version absorbs.
        at=max([new.updated_at or at, *(each.formed_at for each in absorbed)]),
        absorbed_ids=tuple(each.id for each in absorbed),
    )
    return _follow(item, [change], ABSORBED_LATER)


def _decide_switch(state: State, at: datetime) -> Decision:
    base, now, enabled = state.base, state.now, state.item.switch
    if now is None:
        return _keep("the host does not know the agent")
    if base is not None:
        if enabled in (base.agent_memory_enabled, now.agent_memory_enabled):
            return _ALREADY
        if base.agent_memory_enabled is not now.agent_memory_enabled:
            return _keep("switched here since its migration")
    elif now.agent_memory_enabled is not enabled and (state.is_switched or not enabled):
        # A switch that is off may never have been set: it counts as an empty place.
        return _keep("v2 has another switch, which was kept")
    # The log notes a switch that is as in v1 already; the change leaves it, also if unset.
    switch = None if now.agent_memory_enabled is enabled else enabled
    change = SetAgentToggles(
        reason=reason_of(state.item), agent_id=now.id, at=at, agent_memory_enabled=switch
    )
    return Decision(outcome=state.item.outcome, changes=[change])


def _fill(state: State, new: Memory, at: datetime) -> Decision:
    item = state.item
    if isinstance(new, Reflection) and not new.absorbed:
        new = msgspec.structs.replace(new, place=new.place + state.next_place)
    change = write_of(new, reason=reason_of(item), at=at, word_limit=state.word_limit)
    return Decision(outcome=item.outcome, changes=[change])


_ALREADY = Decision(outcome=Outcome.ALREADY)


def _keep(why: str) -> Decision:
    return Decision(outcome=Outcome.KEPT, treatment=Treatment.KEPT, detail=why)


def _follow(item: V1Item, changes: Sequence[Change], why: str) -> Decision:
    return Decision(outcome=item.outcome, changes=changes, treatment=Treatment.FOLLOWED, detail=why)


def _core(model: Reflection | Policy | None) -> Any:
    """Return what v1 can change in a document."""
    if model is None or isinstance(model, Policy):
        return model and settings_of(model)
    return model.home, model.content


def _beyond(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    have = set(known)
    return tuple(each for each in wanted if each not in have)


# -- changes -------------------------------------------------------------------------------------


def write_of(
    new: Memory | Agent, *, reason: str, at: datetime, word_limit: int = 0, version: int = 0
) -> Change:
    """Return the change that writes a document into an empty place, or a text over a version."""
    match new:
        case Fact():
            return AddFact(fact=new, reason=reason)
        case Reflection():
            return AddReflection(reflection=new, word_limit=word_limit, reason=reason)
        case Policy():
            return WritePolicy(policy=new, expected_version=0, at=at, reason=reason)
        case Agent(id=agent_id, agent_memory_enabled=enabled):
            return SetAgentToggles(
                agent_id=agent_id, at=at, agent_memory_enabled=enabled, reason=reason
            )
    return WriteConsolidation(
        scope=new.home,
        expected_version=version,
        as_version=new.version,
        content=new.consolidated_content,
        word_limit=new.word_limit,
        at=new.updated_at or at,
        fixed=new.fixed or None,
        reason=reason,
    )


def removal_of(now: Memory, *, reason: str, at: datetime) -> Change:
    """Return the change that removes a stored document."""
    match now:
        case Fact():
            return RemoveFact.of(now, at, reason)
        case Reflection():
            return RemoveReflection.of(now, at, reason)
        case Policy():
            return RemovePolicy(scope=now.home, expected_version=now.version, at=at, reason=reason)
    return RevertConsolidation(
        scope=now.home,
        expected_version=now.version,
        content="",
        word_limit=now.word_limit,
        at=at,
        reason=reason,
    )
