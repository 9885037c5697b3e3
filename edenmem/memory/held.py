"""Plan changes to items that wait for review."""

from __future__ import annotations

from edenmem.errors import ScopeError
from edenmem.memory.effect import Effect, Write
from edenmem.memory.outcome import audit, conflict, duplicate, missing, plain, result
from edenmem.memory.requirements import home_of
from edenmem.memory.state import State
from edenmem.models.changes import ChangeSet, ChangeStatus, HoldItem, RemoveHeld


def hold(change: HoldItem, state: State, context: ChangeSet) -> Effect:
    """Plan to keep an item; memory and its contexts stay as they are."""
    new = change.held
    try:
        scope = new.home
    except ScopeError as error:
        return conflict(change, new.id, error.message)
    if state.held.get(new.id) is not None:
        return duplicate(change, context, "held", new.id, scope, "it already waits for review")
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, new.id),
        writes=(Write(None, new),),
        entry=audit(change, context, "held", new.id, scope, None, plain(new)),
    )


def remove(change: RemoveHeld, state: State, context: ChangeSet) -> Effect:
    """Plan a removal."""
    old = state.held.get(change.held_id)
    if old is None or home_of(old) != change.scope:
        return missing(change, change.held_id)
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, old.id),
        writes=(Write(old, None),),
        entry=audit(change, context, "held", old.id, change.scope, plain(old), None),
    )
