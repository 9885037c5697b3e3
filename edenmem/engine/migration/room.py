"""Whether scopes have room for the facts that come: what is migrated must not be let go of unsaid.

A scope that keeps only so many facts lets go of its oldest when a formation brings new ones, and
migrated facts are the oldest. A migration itself removes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edenmem.engine.overview import defaults_of
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store, batched

_BATCH = 500
_NAMED = 5


def room_notices(store: Store, settings: Settings, facts: Mapping[Scope, int]) -> list[str]:
    """What to tell of the scopes that have, or will have, more ``facts`` than they keep."""
    full = []
    for scopes in batched(facts, _BATCH):
        policies = store.policies(scopes)
        for scope in scopes:
            policy = policies.get(scope)
            own = policy.fact_buffer_max if policy is not None else None
            limit = own if own is not None else defaults_of(settings, scope.kind).fact_buffer_max
            if limit and facts[scope] > limit:
                full.append(scope.key)
    if not full:
        return []
    more = f" and {len(full) - _NAMED:,} more" if len(full) > _NAMED else ""
    return [
        f"{len(full):,} scopes have more facts than their fact_buffer_max keeps, and the next "
        "formation there lets go of the oldest, which are the migrated ones; 'edenmem scope "
        f"policy' raises it: {', '.join(full[:_NAMED])}{more}"
    ]


def facts_by_scope(store: Store, agent_ids: Sequence[str]) -> dict[Scope, int]:
    """How many facts each scope of these agents has now."""
    return {
        summary.scope: summary.facts
        for agent_id in agent_ids
        for summary in store.scopes(agent_id=agent_id)
        if summary.facts
    }
