"""A store with a few facts of several people, and vectors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast
from tests.support.builders import make_fact
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts


class Memory:
    """Puts facts into the store, and looks at what became of them."""

    def __init__(self, cast: Cast, embedder: FakeEmbedder) -> None:
        self.cast = cast
        self.store: Store = cast.store
        self.embedder = embedder

    def add(self, scope: Scope, *texts: str) -> list[str]:
        """Add facts with vectors; their ids."""
        made = [
            make_fact(
                scope,
                text,
                embedding=self.embedder.vector(text),
                embedding_model=self.embedder.model,
            )
            for text in texts
        ]
        add_facts(self.store, *made)
        return [fact.id for fact in made]

    def accesses(self, scope: Scope) -> int:
        """How many accesses are counted in the scope."""
        return sum(
            fact.access_count for fact in self.store.memory.facts(FactFilter(scopes=(scope,)))
        )


@pytest.fixture
def memory(cast: Cast, embedder: FakeEmbedder) -> Memory:
    return Memory(cast, embedder)


def line(query: str = "grey cat", **fields: Any) -> str:
    """A line of a file of queries."""
    return json.dumps({"query": query, "agent": "eve", "relevant": [], **fields})
