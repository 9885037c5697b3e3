"""How many facts have vectors of which model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from edenmem.store.protocol import Store, VectorCount


class VectorState(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one agent, or of all ("") together, by what their vectors are.

    ``others`` maps other models to their number of facts; ``stale`` is what a backfill would do.
    """

    agent_id: str = ""
    facts: int = 0
    current: int = 0
    missing: int = 0
    wrong_length: int = 0
    others: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """Facts that have a vector, which a backfill replaces."""
        return self.wrong_length + sum(self.others.values())

    @property
    def stale(self) -> int:
        """Facts that meaning does not find as things are."""
        return self.missing + self.replaced


class VectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All facts by their vectors. ``dimensions`` None: not known before the first answer."""

    model: str
    dimensions: int | None
    total: VectorState
    agents: tuple[VectorState, ...]


def vector_status(
    store: Store, model: str, *, dimensions: int | None, agent_id: str | None = None
) -> VectorStatus:
    """How many facts have which vectors, seen from ``model``.

    Raises:
        StoreError: the database cannot be used.
    """
    counts = store.vector_counts(model, dimensions=dimensions, agent_id=agent_id)
    agents = tuple(
        _state(list(of_agent), model, agent)
        for agent, of_agent in itertools.groupby(counts, key=lambda count: count.agent_id)
    )
    return VectorStatus(
        model=model, dimensions=dimensions, total=_state(counts, model, ""), agents=agents
    )


def _state(counts: Iterable[VectorCount], model: str, agent_id: str) -> VectorState:
    facts = current = missing = wrong = 0
    others: dict[str, int] = {}
    for count in counts:
        facts += count.facts
        if count.model == model:
            current += count.facts - count.wrong_length
            wrong += count.wrong_length
        elif count.model:
            others[count.model] = others.get(count.model, 0) + count.facts
        else:
            missing += count.facts
    return VectorState(
        agent_id=agent_id,
        facts=facts,
        current=current,
        missing=missing,
        wrong_length=wrong,
        others=others,
    )
