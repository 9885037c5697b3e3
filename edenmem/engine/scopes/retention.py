"""Retention: how many facts a scope keeps, and which of them a new one lets go."""

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

#: How many facts of a scope one set of changes lets go. A limit that is set on a scope of very many
#: is reached step by step: all removals of a formation must fit into its record.
MOST_REMOVALS = 1000


def fact_buffer_max_of(settings: Settings, scope: Scope, policy: Policy | None) -> int:
    """How many facts the scope keeps; 0: all of them."""
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

    Facts count alone: how much was talked does not matter. Those that ``changes`` add or revise
    are the newest and stay, whatever the limit. Where more than `MOST_REMOVALS` are too many, the
    oldest go first and the rest with the next change.

    Args:
        store: Where the facts are.
        scope: That to which something is added.
        changeable: The scopes whose facts count: a user's of all their accounts that are open.
        maximum: How many facts are kept; 0: all of them.
        changes: What is about to be applied.
        at: The time of the removals.
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
