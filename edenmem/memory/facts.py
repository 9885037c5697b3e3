"""Plan changes to facts."""

from __future__ import annotations

from datetime import datetime

import msgspec

from edenmem.errors import ScopeError
from edenmem.memory.state import (
    Effect,
    Origin,
    State,
    Touch,
    Write,
    audit,
    conflict,
    duplicate,
    history_entry,
    home_of,
    missing,
    plain,
    result,
    stale,
)
from edenmem.models.changes import (
    AddFact,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
    action_of_new_fact,
    version_action,
)
from edenmem.models.memory import Fact, join_times
from edenmem.models.records import HistoryEntry
from edenmem.models.scope import Scope

_SAME = "the scope has the same fact"


def add(change: AddFact, state: State, context: ChangeSet) -> Effect:
    """Plan an addition."""
    return insert(change, change.fact, ChangeStatus.APPLIED, state, context)


def revise(change: ReviseFact, state: State, context: ChangeSet) -> Effect:
    """Plan a new text: in place, next to a changed target, or in favor of a duplicate."""
    old = fact_in(state, change.scope, change.fact_id)
    if old is None or old.version != change.expected_version:
        if change.or_add is not None:
            return insert(change, change.or_add, ChangeStatus.ADDED_INSTEAD, state, context)
        if old is None:
            return missing(change, change.fact_id)
        return stale(change, old.id, old.version, change.expected_version)
    new = change.revise(old)
    if change.fields is not None and (taken := _key_taken(new, change.scope, state)):
        return conflict(change, old.id, taken)
    # With a key of its own, a fact has no duplicate.
    twin = state.owners.get((change.scope, new.hash)) if new.key is None else None
    if twin is not None and twin != old.id:
        answer = result(
            change, ChangeStatus.DUPLICATE, twin, "another fact of the scope has this text"
        )
        gone = _take_away(change, old, change.at, state, context)
        return msgspec.structs.replace(gone, result=answer)
    origin = Origin(
        action=version_action(change, context.actor),
        actor=context.actor.name,
        change_id=change.id,
        at=change.at,
    )
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, old.id),
        writes=(Write(old, new),),
        versions=(*_replaced(old, state), version_of(new, origin, change.at)),
        life=_life(old, state),
        origin=origin,
        entry=audit(change, context, "fact", old.id, change.scope, plain(old), plain(new)),
        touches=(Touch(change.scope),),
    )


def remove(change: RemoveFact, state: State, context: ChangeSet) -> Effect:
    """Plan a removal."""
    old = fact_in(state, change.scope, change.fact_id)
    if old is None:
        return missing(change, change.fact_id)
    if old.version != change.expected_version:
        return stale(change, old.id, old.version, change.expected_version)
    return _take_away(change, old, change.at, state, context)


def fact_in(state: State, scope: Scope, fact_id: str) -> Fact | None:
    """Return the fact, if it is in this scope."""
    found = state.facts.get(fact_id)
    return found if found is not None and home_of(found) == scope else None


def insert(
    change: AddFact | ReviseFact,
    fact: Fact,
    status: ChangeStatus,
    state: State,
    context: ChangeSet,
) -> Effect:
    """Plan the insertion of a fact, by an addition or instead of a revision."""
    try:
        scope = fact.home
    except ScopeError as error:
        return conflict(change, fact.id, error.message)
    twin = state.owners.get((scope, fact.hash))
    if twin is not None:
        if twin in state.facts:  # a store loads a duplicate only if it expires
            known = state.facts[twin]
            if known is not None and fact.outlasts(known):
                return _prolong(change, known, fact, state, context)
        return duplicate(change, context, "fact", twin, scope, _SAME)
    if taken := _key_taken(fact, scope, state):
        return conflict(change, fact.id, taken)
    if state.facts.get(fact.id) is not None:
        return conflict(change, fact.id, "another fact has this id")
    head = state.heads.get(("fact", fact.id))
    actor = context.actor
    if head is None:
        life, versions = 0, tuple[HistoryEntry, ...]()
        action = version_action(change, actor)
        origin = Origin(action=action, actor=actor.name, change_id=change.id)
    else:  # it was removed: its versions go on
        life = head.life + 1
        fact = msgspec.structs.replace(fact, version=max(fact.version, head.version))
        origin = Origin(action="restore", actor=actor.name, change_id=change.id, at=context.at)
        versions = (version_of(fact, origin, context.at),)
    return Effect(
        change=change,
        result=result(change, status, fact.id),
        writes=(Write(None, fact),),
        versions=versions,
        life=life,
        origin=origin,
        entry=audit(change, context, "fact", fact.id, scope, None, plain(fact)),
        touches=(Touch(scope, facts=1),),
    )


KEY_TAKEN = "the scope has that key in another fact"


def key_words(twin: str) -> str:
    """Return that another fact of the scope has a key."""
    return f"{KEY_TAKEN}, {twin}"


def _key_taken(fact: Fact, scope: Scope, state: State) -> str:
    """Return that another fact of the scope has the fact's key; "" if none has."""
    holder = None if fact.key is None else state.keys.get((scope, fact.key))
    return "" if holder in (None, fact.id) else key_words(str(holder))


def _prolong(
    change: AddFact | ReviseFact, known: Fact, fact: Fact, state: State, context: ChangeSet
) -> Effect:
    """Plan that a known fact lasts as long as the same fact, said again."""
    revision = ReviseFact(
        id=change.id,
        reason=change.reason or "said again",
        scope=known.home,
        fact_id=known.id,
        expected_version=known.version,
        content=known.content,
        at=context.at,
        times=join_times([known.said_at, fact.said_at], [known.recent_at, fact.recent_at]),
        fields=known.fields.until(fact.expires_at),
    )
    effect = revise(revision, state, context)
    answer = result(change, ChangeStatus.DUPLICATE, known.id, _SAME)
    return msgspec.structs.replace(effect, change=change, result=answer)


def _take_away(
    change: RemoveFact | ReviseFact, old: Fact, at: datetime, state: State, context: ChangeSet
) -> Effect:
    origin = Origin(action="delete", actor=context.actor.name, change_id=change.id, at=at)
    tombstone = msgspec.structs.replace(version_of(old, origin, at), snapshot=old)
    return Effect(
        change=change,
        result=result(change, ChangeStatus.APPLIED, old.id),
        writes=(Write(old, None),),
        versions=(*_replaced(old, state), tombstone),
        life=_life(old, state),
        entry=audit(change, context, "fact", old.id, change.scope, plain(old), None),
        touches=(Touch(change.scope, facts=-1),),
    )


def _replaced(old: Fact, state: State) -> tuple[HistoryEntry, ...]:
    """Return the current version, if history lacks it."""
    key = ("fact", old.id)
    head = state.heads.get(key)
    if head is not None and head.version == old.version:
        return ()
    origin = state.origins.get(key) or Origin(action=action_of_new_fact(old))
    return (version_of(old, origin, origin.at or old.changed_at),)


def version_of(fact: Fact, origin: Origin, at: datetime) -> HistoryEntry:
    """Return the history entry of a version of a fact."""
    return history_entry(
        "fact",
        fact.id,
        fact.home,
        fact.version,
        content=fact.content,
        fields=fact.fields,
        at=at,
        action=origin.action,
        actor=origin.actor,
        change_id=origin.change_id,
    )


def _life(fact: Fact, state: State) -> int:
    head = state.heads.get(("fact", fact.id))
    return 0 if head is None else head.life
