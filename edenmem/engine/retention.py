"""Room for facts: a scope that keeps only so many lets go of its oldest when new ones come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from edenmem.engine.offers import Offer
from edenmem.models.changes import AddFact, Change, RemoveFact, ReviseFact
from edenmem.models.search import FactFilter
from edenmem.store.protocol import Store


def retention_changes(
    store: Store, offers: Sequence[Offer], changes: Sequence[Change], at: datetime
) -> list[Change]:
    """Removals that keep each scope within its limit once ``changes`` are applied. Blocks.

    Facts count alone: how much was talked does not matter. Those that ``changes`` add or revise
    are the newest and stay, whatever the limit.
    """
    removals: list[Change] = []
    for offer in offers:
        added = sum(1 for each in changes if _adds_to(each, offer))
        if not offer.fact_buffer_max or not added:
            continue
        touched = {
            each.fact_id
            for each in changes
            if isinstance(each, ReviseFact | RemoveFact) and each.scope == offer.scope
        }
        revised = sum(
            1 for each in changes if isinstance(each, ReviseFact) and each.scope == offer.scope
        )
        room = max(offer.fact_buffer_max - added - revised, 0)
        newest_first = store.facts(FactFilter(scopes=(offer.scope,)))
        untouched = (fact for fact in newest_first if fact.id not in touched)
        removals.extend(
            RemoveFact(
                scope=offer.scope,
                fact_id=fact.id,
                expected_version=fact.version,
                at=at,
                reason="retention",
            )
            for fact in islice(untouched, room, None)
        )
    return removals


def _adds_to(change: Change, offer: Offer) -> bool:
    return isinstance(change, AddFact) and change.fact.home == offer.scope
