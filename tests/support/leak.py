"""A fact with a secret, with copies of its text in every place, for forgetting single facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edenmem.models.changes import AddFact, ReviseFact
from edenmem.models.formation import Decision
from edenmem.models.host import CachedContext, Message
from edenmem.models.memory import Fact
from tests.support.builders import NOW, ago, change_set, make_fact, make_formation
from tests.support.forgetting import Town, make_town
from tests.support.formations import Steps
from tests.support.memory import applied
from tests.support.vectors import random_unit

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

SECRET = "The safe opens with quince4711."
EARLIER = "The safe opens with quince0815."
#: The vectors of the two texts, the earlier one first.
VECTORS = (random_unit(1, 64), random_unit(2, 64))


@dataclass(kw_only=True)
class Leak:
    """A fact of Bruno with a secret, formed from two of the messages of his session."""

    town: Town
    fact: Fact
    other: Fact
    sources: Sequence[Message]
    formation_id: str

    @property
    def store(self) -> Store:
        return self.town.store


def make_leak(store: Store) -> Leak:
    """Form the fact and another one, revise it, and cache a context with it."""
    town = make_town(store)
    said = list(store.host.messages(town.lone.id))
    sources = said[:2]
    formation = make_formation(town.lone, said)
    assert store.formations.claim(formation)
    source_ids = tuple(message.id for message in sources)
    fact, other = (
        make_fact(
            town.his(),
            text,
            session_id=town.lone.id,
            source_message_ids=ids,
            formation_id=formation.id,
            formed_at=ago(hours=1),
            embedding=vector,
            embedding_model="m",
        )
        for text, ids, vector in (
            (EARLIER, source_ids, VECTORS[0]),
            ("Bruno rows.", (said[3].id,), random_unit(3, 64)),
        )
    )
    assert Steps(store).record(
        formation.id,
        worker="worker-1",
        changes=change_set(AddFact(fact=fact), AddFact(fact=other)),
        decisions=(Decision(content=EARLIER, action="ADD", target_id=fact.id),),
        usage=(),
        counts={},
        now=NOW,
    )
    Steps(store).apply(formation.id, now=NOW)
    revise(store, fact, SECRET, VECTORS[1])
    store.contexts.cache_context(
        town.lone.id,
        town.eve.id,
        CachedContext(xml=f"<m>{SECRET}</m>", fingerprint="f", built_at=NOW),
    )
    return Leak(town=town, fact=fact, other=other, sources=sources, formation_id=formation.id)


def revise(store: Store, fact: Fact, text: str, vector: bytes | None = None) -> None:
    """Give a new fact another text."""
    change = ReviseFact(
        scope=fact.home,
        fact_id=fact.id,
        expected_version=1,
        content=text,
        at=NOW,
        embedding=vector,
        embedding_model="m" if vector else None,
    )
    applied(store, change)
