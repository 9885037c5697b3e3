"""The few facts with which a cluster is tried: two scopes, two forms of vectors, an old one, a rare
word, and for each the score that it must have."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import datetime, timedelta

from edenmem.models.ids import new_id, utc_now
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter

MODEL = "edenmem-trial"


class AtlasWorld:
    """Facts, all with the word "bees" in them, and what is known of each."""

    DIMENSIONS = 8

    def __init__(self) -> None:
        self._places: list[tuple[Fact, int]] = []
        agent, self.stranger = new_id(), new_id()
        self.anna, self.shared = Scope.user(agent, new_id()), Scope.agent(agent)
        self.rare_word = "saffron"
        now = utc_now()
        self.old = self._fact(
            self.anna, "Bees were kept here long ago.", 1, formed_at=now - timedelta(days=40)
        )
        self.rare = self._fact(self.shared, "Bees love saffron.", 2)
        self.arrays = (
            self.old,
            self.rare,
            self._fact(self.anna, "Anna keeps bees in Lisbon.", 0),
            self._fact(self.shared, "The bees are quiet in winter.", 5),
        )
        self.bindata = (
            self._fact(self.anna, "Anna sold four hives of bees.", 3),
            self._fact(self.shared, "Bees fly when the orange trees flower.", 4),
        )
        self.facts = (*self.arrays, *self.bindata)
        self.query = _vector(0.0)
        self.everywhere = FactFilter(scopes=(self.anna, self.shared))
        self.scores = {fact.id: (1 + math.cos(_angle(n))) / 2 for fact, n in self._places}

    def _fact(
        self, scope: Scope, content: str, place: int, *, formed_at: datetime | None = None
    ) -> Fact:
        fact = Fact(
            id=new_id(),
            scope=scope.kind,
            agent_id=scope.agent_id,
            user_id=scope.user_id,
            session_id=new_id(),
            content=content,
            hash=content_hash(content),
            embedding=_vector(_angle(place)),
            embedding_model=MODEL,
            formed_at=formed_at or utc_now(),
        )
        self._places.append((fact, place))
        return fact

    def ids_of(self, *scopes: Scope) -> set[str]:
        """The ids of the facts in these scopes."""
        return {fact.id for fact in self.facts if fact.home in scopes}


def _angle(place: int) -> float:
    """Wide enough apart that no rounding changes the order."""
    return place * math.pi / 7


def _vector(angle: float) -> bytes:
    """A unit vector at this angle to that of angle 0."""
    numbers: Sequence[float] = (math.cos(angle), math.sin(angle), *([0.0] * 6))
    return struct.pack(f"<{AtlasWorld.DIMENSIONS}f", *numbers)
