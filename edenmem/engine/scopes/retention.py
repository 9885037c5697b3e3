"""Retention: the maximum number of facts in a scope, and removal of the oldest ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from edenmem.engine.scopes.overview import defaults_of
from edenmem.models.changes import AddFact, Change, RemoveFact, ReviseFact
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store

#: Maximum number of removals in one set of changes, which must fit into the record of a formation.
#: A large scope reaches a new limit in several steps.
MOST_REMOVALS = 1000


def fact_buffer_max_of(settings: Settings, scope: Scope, policy: Policy | None) -> int:
    """Return the maximum number of facts in a scope (0 = no limit)."""
    own = policy.fact_buffer_max if policy is not None else None
    return own if own is not None else defaults_of(settings, scope.kind).fact_buffer_max


def retention_changes(
    store: Store,
    scope: Scope,
    changeable: Sequence[Scope],
    maximum: int,
    changes: Sequence[Change],
    at: datetime,
) -> list[RemoveFact]:
    """Return the removals that keep a scope within its limit once ``changes`` are applied. Blocks.

    Facts that ``changes`` add or revise are the newest, and always stay. Beyond `MOST_REMOVALS`,
    the oldest facts are removed first, and the others with the next change.

    Args:
        store: The store.
        scope: The scope of the new facts.
        changeable: Scopes whose facts count: for a user, those of all active accounts.
        maximum: Maximum number of facts (0 = no limit).
        changes: The changes to apply.
        at: Time of the removals.
    """
    added = sum(isinstance(each, AddFact) and each.fact.home == scope for each in changes)
    if not maximum or not added:
        return []
    touched = {
        each.fact_id
        for each in changes
        if isinstance(each, ReviseFact | RemoveFact) and each.scope in changeable
    }
    revised = sum(isinstance(each, ReviseFact) and each.fact_id in touched for each in changes)
    room = max(maximum - added - revised, 0)
    newest_first = store.memory.facts(FactFilter(scopes=tuple(changeable)))
    untouched = (fact for fact in newest_first if fact.id not in touched)
    oldest = deque(islice(untouched, room, None), maxlen=MOST_REMOVALS)
    return [
        RemoveFact(
            scope=fact.home,
            fact_id=fact.id,
            expected_version=fact.version,
            at=at,
            reason="retention",
        )
        for fact in oldest
    ]
