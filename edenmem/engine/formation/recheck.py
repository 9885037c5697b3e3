"""Check once more what may be stored, before the outcome of a formation is applied.

While a model answers, a session or message may be deleted, a person may join, a switch may be
turned off, and the platform may read the same messages.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime

from msgspec.structs import replace

from edenmem.engine.scopes.visibility import current_view
from edenmem.errors import ConflictError
from edenmem.memory.formations import apply
from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeSet,
    HoldItem,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.formation import Decision, Formation
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store


def recheck(
    store: Store, formation: Formation, changes: ChangeSet
) -> tuple[ChangeSet, tuple[Decision, ...], int]:
    """Return the changes of a formation that may still be applied. Blocks.

    Also returns the decisions about the others, and the number of messages read by both.
    """
    writes: frozenset[Scope] = frozenset()
    existing: Set[str] = frozenset()
    read: Set[str] = frozenset()
    with store.database.snapshot():
        session = store.host.session(formation.session_id)
        agent = store.host.agent(formation.agent_id)
        is_gone = (
            session is None
            or session.deleted
            or session.incognito
            or formation.agent_id not in session.agents
        )
        if session is not None and agent is not None and not is_gone:
            writes = frozenset(current_view(store, session, agent).writes_reflections)
            found = store.host.messages_by_ids(formation.message_ids)
            existing = {message.id for message in found}
        if store.database.is_beside_platform():
            read = store.formations.proof(formation.session_id, formation.agent_id)
    ids = frozenset(formation.message_ids)

    def why_not(change: Change) -> str:
        scopes, sources = _targets(change)
        if not scopes:
            return ""
        if is_gone or agent is None:
            return "the session was deleted or made incognito, or the agent left it"
        if writes.isdisjoint(scopes):
            return "the scope was closed in the meantime: a person joined, or memory was paused"
        if sources & ids - existing:
            return "a source message was deleted in the meantime"
        if sources and sources <= read:
            return "the platform read the source messages in the meantime"
        return ""

    reasons = {change.id: reason for change in changes.changes if (reason := why_not(change))}
    decisions = tuple(
        Decision(content=_content(change), action="REJECTED", reason=reasons[change.id])
        for change in changes.changes
        if change.id in reasons
    )
    return changes.without(frozenset(reasons)), decisions, len(ids & read)


def apply_recorded(
    store: Store,
    formation: Formation,
    *,
    now: datetime,
    worker: str | None = None,
    is_checked: bool = False,
) -> tuple[Formation, list[ChangeResult]]:
    """Apply what was recorded, as far as it is still allowed; return the next state. Blocks.

    ``is_checked``: it was checked before it was recorded. Nothing is done if another worker has
    applied it, or nothing is recorded.

    Raises:
        ConflictError: other writers change the same memory all the time; the formation says so.
    """
    while True:
        after, changes = apply(formation, now=now, worker=worker), formation.changes
        if after is None or changes is None:
            return formation, []
        if not is_checked:
            changes, _, _ = recheck(store, formation, changes)
        try:
            results = store.formations.apply_formation(formation, after, changes)
        except ConflictError as error:
            noted = replace(formation, error=error.message, updated_at=now)
            store.formations.move(formation, noted)
            raise
        if results is not None:
            return after, results
        found = store.formations.formation(formation.id)
        if found is None or found.next_step != formation.next_step:
            return found or formation, []  # its worker has recorded the next step
        formation = found


def _targets(change: Change) -> tuple[tuple[Scope, ...], frozenset[str]]:
    """Return the scopes, one of which must be open, and the sources; none if always allowed."""
    match change:
        case AddFact(fact=made) | AddReflection(reflection=made) | HoldItem(held=made):
            return (made.home,), frozenset(made.source_message_ids)
        case ReviseFact(scope=scope, source_message_ids=sources, or_add=made):
            # Another account's fact may be out of reach now: then the new one is added.
            return (scope, *((made.home,) if made else ())), frozenset(sources)
        case RemoveFact(scope=scope):
            return (scope,), frozenset()
        case _:
            return (), frozenset()


def _content(change: Change) -> str:
    match change:
        case AddFact(fact=made) | AddReflection(reflection=made) | HoldItem(held=made):
            return made.content
        case _:
            return getattr(change, "content", "")
