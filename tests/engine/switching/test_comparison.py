"""Comparison of two models on the same labeled queries."""

from __future__ import annotations

import pytest

from edenmem.engine.embeddings.switch import ModelSwitcher
from edenmem.engine.evaluation.queries import LabeledQuery
from edenmem.engine.evaluation.tuning import compare_models
from edenmem.errors import UsageError
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import make_fact
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

MIRA = Scope.agent("a" * 24)
SETTINGS = Settings(search=SearchSettings(semantic_floor=0.6, recipe="semantic+recency", top_k=3))
OLD = FakeEmbedder(model="old", dimensions=128)
TEXTS = ("Miso is a grey cat.", "The cello is old.", "Lena folds whale lanterns.")


class Dull(FakeEmbedder):
    """A model that gives all queries the same vector."""

    def vector(self, text: str) -> bytes:
        return super().vector("lanterns whale folds" if text.endswith("?") else text)


def asked(query: str, *relevant: str) -> LabeledQuery:
    return LabeledQuery(line=1, query=query, scopes=(MIRA,), relevant=frozenset(relevant))


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    facts = [
        make_fact(MIRA, text, embedding=OLD.vector(text), embedding_model="old") for text in TEXTS
    ]
    add_facts(sqlite_store, *facts)
    return sqlite_store


async def test_the_new_model_is_evaluated_before_the_switch(store: Store) -> None:
    old = make_runtime(store, SETTINGS, embedder=OLD)
    after = make_runtime(store, SETTINGS, embedder=Dull(model="new", dimensions=96))
    switcher = ModelSwitcher(after)
    plan = await switcher.plan()
    await switcher.fill(plan)
    ids = {fact.content: fact.id for fact in store.memory.facts(FactFilter(scopes=(MIRA,)))}
    queries = [asked("grey cat?", ids[TEXTS[0]]), asked("folds lanterns?", ids[TEXTS[2]])]
    same = await compare_models(plan.switch, queries[1:], old=old, new=after)
    assert same.loss == 0
    found = await compare_models(plan.switch, queries, old=old, new=after)
    assert [pair.recipe for pair in found.pairs] == ["semantic", "convex", "rrf"]
    assert (found.old_model, found.new_model, found.top_k) == ("old", "new", 3)
    assert found.loss == pytest.approx(0.5)
    assert (found.pairs[0].old.recall, found.pairs[0].new.recall) == (1.0, 0.5)


async def test_a_comparison_needs_both_models_and_a_label(store: Store) -> None:
    new = FakeEmbedder(model="new", dimensions=96)
    after = make_runtime(store, SETTINGS, embedder=new)
    switcher = ModelSwitcher(after)
    plan = await switcher.plan()
    await switcher.fill(plan)
    for configured in (None, new):
        with pytest.raises(UsageError, match="needs both models") as caught:
            await compare_models(
                plan.switch,
                [asked("cat", "f" * 24)],
                old=make_runtime(store, SETTINGS, embedder=configured),
                new=after,
            )
        assert "--model" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="no query has a known label"):
        await compare_models(
            plan.switch,
            [asked("cat")],
            old=make_runtime(store, SETTINGS, embedder=OLD),
            new=after,
        )
