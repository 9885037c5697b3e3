"""Plan changes in order, each on the state that the earlier ones leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from edenmem.memory import facts, reflections, settings, texts
from edenmem.memory.state import (
    FIELDS,
    VOID,
    Answer,
    Effect,
    Head,
    State,
    Write,
    blocks_of,
    conflict,
    home_of,
    kept_scopes,
    needs,
    result,
)
from edenmem.models.changes import (
    AddAgent,
    AddFact,
    AddReflection,
    AddUser,
    Change,
    ChangeSet,
    ChangeStatus,
    HoldItem,
    RemoveAgent,
    RemoveFact,
    RemoveHeld,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    RepairBuffer,
    RestoreReflection,
    RevertConsolidation,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, Held, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind

_PLANS: dict[type, Callable[[Any, State, ChangeSet], Effect]] = {
    AddFact: facts.add,
    ReviseFact: facts.revise,
    RemoveFact: facts.remove,
    SetPrivacy: settings.set_privacy,
    AddReflection: reflections.insert,
    RestoreReflection: reflections.insert,
    ReviseReflection: reflections.revise,
    RemoveReflection: reflections.remove,
    HoldItem: reflections.hold,
    RemoveHeld: reflections.remove_held,
    WriteConsolidation: texts.write,
    RevertConsolidation: texts.revert,
    RepairBuffer: texts.repair,
    WritePolicy: settings.write_policy,
    RemovePolicy: settings.remove_policy,
    SetAgentToggles: settings.set_toggles,
    AddAgent: settings.add_account,
    AddUser: settings.add_account,
    RemoveAgent: settings.remove_account,
    RemoveUser: settings.remove_account,
}


def plan(change: Change, state: State, context: ChangeSet) -> Effect:
    """Plan one change: return its effect on memory in ``state``.

    Args:
        change: The change.
        state: The known state; it must contain what `needs` names. It is not modified.
        context: The set of the change: ID, actor and time.
    """
    known = state.answers.get(change.id)
    if known is not None:
        status = ChangeStatus.DUPLICATE if known.void else ChangeStatus.ALREADY
        return Effect(change=change, result=result(change, status, known.target_id))
    if state.blocks and any(state.blocks.get(key) for key in blocks_of(change)):
        return conflict(change, "", "it or its owner was erased while this was in progress")
    if context.automatic and (closed := _closed_scopes(change, state)):
        return _plan_open_part(change, closed, state, context)
    return _PLANS[type(change)](change, state, context)


def _closed_scopes(change: Change, state: State) -> dict[Scope, str]:
    """Return the scopes of a change that are closed to new memory, with the reason."""
    reasons = {
        scope: settings.closed_reason(
            scope, state.agents.get(scope.agent_id), state.policies.get(scope)
        )
        for scope in kept_scopes(change)
    }
    return {scope: reason for scope, reason in reasons.items() if reason}


def _plan_open_part(
    change: Change, closed: dict[Scope, str], state: State, context: ChangeSet
) -> Effect:
    """Plan a change with a closed scope: its effect on other scopes still holds."""
    match change:
        case ReviseFact(or_add=Fact() as fact) if fact.home not in closed:
            return facts.insert(change, fact, ChangeStatus.ADDED_INSTEAD, state, context)
        case ReviseFact(scope=scope) if scope not in closed:
            return facts.revise(msgspec.structs.replace(change, or_add=None), state, context)
    reason = next(iter(closed.values()))
    return conflict(change, "", f"{reason} in the meantime")


def fold(state: State, effect: Effect) -> State:
    """Update ``state`` with an effect, in place, and return it."""
    entry = effect.entry
    if entry is None:
        return state
    state.answers[entry.id] = Answer(target_id=entry.target_id, void=entry.status == VOID)
    for write in effect.writes:
        _fold_write(state, write)
    for version in effect.versions:
        key = (version.target_type, version.target_id)
        state.heads[key] = Head(version=version.version, life=effect.life)
    if effect.origin is not None:
        state.origins[(entry.target_type, entry.target_id)] = effect.origin
    if effect.repairs is not None:
        state.repairs[effect.repairs] = None
    return state


def plan_all(
    context: ChangeSet, state: State, changes: Sequence[Change] | None = None, *, start: int = 0
) -> list[Effect]:
    """Plan changes in order, later ones seeing earlier ones; ``state`` is folded.

    Args:
        context: The set.
        state: The known state for all changes.
        changes: Some of the set's changes; None for all.
        start: The place of the first of these in the set.
    """
    effects = []
    for place, change in enumerate(context.changes if changes is None else changes, start):
        effect = plan(change, state, context)
        if effect.entry is not None:
            entry = msgspec.structs.replace(effect.entry, place=place)
            effect = msgspec.structs.replace(effect, entry=entry)
        fold(state, effect)
        effects.append(effect)
    refused = next((effect for effect in effects if not effect.result.ok), None)
    if context.whole and refused is not None:
        why = refused.result.detail
        return [each if each is refused else conflict(each.change, "", why) for each in effects]
    return effects


def preview(context: ChangeSet, load: Callable[..., State]) -> list[Effect]:
    """Return the effects of a set, without applying it; ``load`` is `load_state` of a store."""
    wanted = needs(context.changes, automatic=context.automatic)
    return plan_all(context, load(wanted, at=context.at))


# -- folding -------------------------------------------------------------------------------------


def _fold_write(state: State, write: Write) -> None:
    model, new, field = write.model, write.new, FIELDS[write.kind]
    by = (new is not None) - (write.old is not None)
    match model:
        case Fact():
            _fold_fact(state, write)
        case Reflection() | Held():
            getattr(state, field)[model.id] = new
            _grow(state, model.home, field, by)
        case Consolidation():
            state.texts[model.home] = new if isinstance(new, Consolidation) else None
            _grow(state, model.home, field, _has_text(new) - _has_text(write.old))
        case Policy():
            state.policies[model.home] = new if isinstance(new, Policy) else None
            _grow(state, model.home, field, by)
        case Agent() | User():
            getattr(state, field)[model.id] = new
            state.ids[model.id] = state.names[write.kind, model.username] = new is not None
            if isinstance(model, Agent) and model.owner:
                _add(state, ("user", model.owner), field, by)
    waited, waits = write.waits
    if isinstance(model, Reflection) and waited != waits:
        moved = state.moved.setdefault(model.home, {})
        moved[model.id] = model.formed_at if waits else None


def _fold_fact(state: State, write: Write) -> None:
    for fact in (write.old, write.new):
        home = home_of(fact) if isinstance(fact, Fact) else None
        if isinstance(fact, Fact) and home is not None:
            state.facts[fact.id] = fact if fact is write.new else None
            held_by = fact.id if fact is write.new else None
            state.owners[(home, fact.hash)] = held_by
            if fact.key is not None:
                state.keys[(home, fact.key)] = held_by
            _grow(state, home, "facts", 1 if fact is write.new else -1)


def _has_text(model: object) -> bool:
    return isinstance(model, Consolidation) and bool(model.consolidated_content)


def _grow(state: State, scope: Scope, what: str, by: int) -> None:
    """Count an added or removed item for the agent and the account of a scope."""
    _add(state, ("agent", scope.agent_id), what, by)
    if scope.kind is ScopeKind.USER:
        _add(state, ("user", scope.owner), what, by)


def _add(state: State, key: tuple[str, str], what: str, by: int) -> None:
    if by:
        grown = state.grown.setdefault(key, {})
        grown[what] = grown.get(what, 0) + by
