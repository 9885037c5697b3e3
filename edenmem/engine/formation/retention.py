"""Room for facts: a scope that keeps only so many lets go of its oldest when new ones come.

Of a user with several accounts the facts of all accounts count, but for paused scopes; the limit is
that of the account that something new is written for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from edenmem.engine.formation.quotas import Offer
from edenmem.models.changes import AddFact, Change, RemoveFact, ReviseFact
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store

#: How many facts of a scope one formation lets go. A limit that is set on a scope of very many is
#: reached step by step: all removals of a formation must fit into its record.
MOST_REMOVALS = 1000


def retention_changes(
    store: Store, offers: Sequence[Offer], changes: Sequence[Change], at: datetime
) -> list[Change]:
    """Removals that keep each scope within its limit once ``changes`` are applied. Blocks.

    Facts count alone: how much was talked does not matter. Those that ``changes`` add or revise
    are the newest and stay, whatever the limit. Where more than `MOST_REMOVALS` are too many, the
    oldest go first and the rest with the next formations.
    """
    removals: list[Change] = []
    for offer in offers:
        added = sum(1 for each in changes if _adds_to(each, offer))
        if not offer.fact_buffer_max or not added:
            continue
        touched = {
            each.fact_id
            for each in changes
            if isinstance(each, ReviseFact | RemoveFact) and each.scope in offer.changeable
        }
        revised = sum(
            1 for each in changes if isinstance(each, ReviseFact) and each.fact_id in touched
        )
        room = max(offer.fact_buffer_max - added - revised, 0)
        newest_first = store.facts(FactFilter(scopes=offer.changeable))
        untouched = (fact for fact in newest_first if fact.id not in touched)
        oldest = deque(islice(untouched, room, None), maxlen=MOST_REMOVALS)
        removals.extend(
            RemoveFact(
                scope=fact.home,
                fact_id=fact.id,
                expected_version=fact.version,
                at=at,
                reason="retention",
            )
            for fact in oldest
        )
    return removals


def _adds_to(change: Change, offer: Offer) -> bool:
    return isinstance(change, AddFact) and change.fact.home == offer.scope
