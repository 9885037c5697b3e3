"""Plan changes to reflections, and thereby to buffers, and to items that wait for review."""

from __future__ import annotations

import msgspec

from edenmem.errors import ScopeError
from edenmem.memory.state import (
    Effect,
    State,
    Touch,
    Write,
    audit,
    conflict,
    duplicate,
    home_of,
    missing,
    plain,
    result,
    stale,
    written,
)
from edenmem.memory.texts import new_text
from edenmem.models.changes import (
    AddReflection,
    ChangeSet,
    ChangeStatus,
    HoldItem,
    RemoveHeld,
    RemoveReflection,
    RestoreReflection,
    ReviseReflection,
)
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope


def insert(change: AddReflection | RestoreReflection, state: State, context: ChangeSet) -> Effect:
    """Plan an addition or a restoration, and the scope's document if it has none."""
    new = change.reflection
    try:
        scope = new.home
    except ScopeError as error:
        return conflict(change, new.id, error.message)
    known = state.reflections.get(new.id)
    if known is not None:
        if home_of(known) == scope and known.content == new.content:
            return duplicate(change, context, "reflection", new.id, scope, "it already exists")
        return conflict(change, new.id, "another reflection has this id")
    writes = [Write(None, new)]
    if not new.absorbed and state.texts.get(scope) is None:
        text = new_text(change.id, scope, word_limit=change.word_limit)
        writes.append(Write(None, text))
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, new.id),
        writes=tuple(writes),
        entry=audit(change, context, "reflection", new.id, scope, None, plain(new)),
        touches=(Touch(scope, reflections=1, pending=0 if new.absorbed else 1),),
    )


def revise(change: ReviseReflection, state: State, context: ChangeSet) -> Effect:
    """Plan a new text of a pending reflection."""
    old = reflection_in(state, change.scope, change.reflection_id)
    if old is None:
        return missing(change, change.reflection_id)
    if old.absorbed:
        return conflict(change, old.id, "it has already been consolidated")
    if old.version != change.expected_version:
        return stale(change, old.id, old.version, change.expected_version)
    unconfirmed = change.unconfirmed
    if unconfirmed is None:
        unconfirmed = old.unconfirmed if change.content == old.content else ""
    new = msgspec.structs.replace(
        old,
        content=change.content,
        version=old.version + 1,
        updated_at=change.at,
        unconfirmed=unconfirmed,
    )
    return written(change, context, old, new, change.scope, Touch(change.scope))


def remove(change: RemoveReflection, state: State, context: ChangeSet) -> Effect:
    """Plan a removal."""
    old = reflection_in(state, change.scope, change.reflection_id)
    if old is None:
        return missing(change, change.reflection_id)
    if old.version != change.expected_version:
        return stale(change, old.id, old.version, change.expected_version)
    gone = Touch(change.scope, reflections=-1, pending=0 if old.absorbed else -1)
    return written(change, context, old, None, change.scope, gone)


def reflection_in(state: State, scope: Scope, reflection_id: str) -> Reflection | None:
    """Return the reflection, if it is in this scope."""
    found = state.reflections.get(reflection_id)
    return found if found is not None and home_of(found) == scope else None


# -- held items ----------------------------------------------------------------------------------


def hold(change: HoldItem, state: State, context: ChangeSet) -> Effect:
    """Plan to keep an item; memory and its contexts stay as they are."""
    new = change.held
    try:
        scope = new.home
    except ScopeError as error:
        return conflict(change, new.id, error.message)
    if state.held.get(new.id) is not None:
        return duplicate(change, context, "held", new.id, scope, "it already waits for review")
    return written(change, context, None, new, scope)


def remove_held(change: RemoveHeld, state: State, context: ChangeSet) -> Effect:
    """Plan a removal."""
    old = state.held.get(change.held_id)
    if old is None or home_of(old) != change.scope:
        return missing(change, change.held_id)
    return written(change, context, old, None, change.scope)
