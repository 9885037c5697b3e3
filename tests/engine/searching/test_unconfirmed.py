"""Facts in doubt rank below others: by one rule, on every store, for every recipe."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edenmem.engine.reports import SearchReport
from edenmem.engine.search.searcher import Searcher
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.support.builders import FixedClock, make_fact
from tests.support.embedder import FakeEmbedder
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

SCOPE = Scope.user(new_id(), new_id())
DOUBTED = "Anna lives in Lisbon near the river."
SURE = "Anna lives in Lisbon near the harbour."
QUERY = "Anna lives in Lisbon near the river"
RECIPES = ("convex", "rrf", "semantic", "text")
STAGES = ("", "+rerank", "+recency", "+mmr", "+rerank+recency+mmr")


class Reranker:
    """Every text is as relevant as it shares words with the query."""

    model = "words"

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        words = set(query.split())
        return tuple(len(words & set(text.split())) / 20 for text in documents)

    async def close(self) -> None:
        """Do nothing."""


async def search(store: Store, recipe: str, weight: float) -> SearchReport:
    settings = Settings(search=SearchSettings(semantic_floor=0.5, unconfirmed_weight=weight))
    searcher = Searcher(
        make_runtime(
            store, settings, embedder=FakeEmbedder(), clock=FixedClock(), reranker=Reranker()
        )
    )
    return await searcher.search([QUERY], [SCOPE], recipe=recipe, explain=True)


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("recipe", RECIPES)
async def test_doubt_lowers_the_relevance(store: Store, recipe: str, stages: str) -> None:
    embedder = FakeEmbedder()
    doubted, sure, other = (
        make_fact(
            SCOPE,
            text,
            unconfirmed=doubt,
            embedding=embedder.vector(text),
            embedding_model=embedder.model,
        )
        for text, doubt in ((DOUBTED, "has no quote"), (SURE, ""), ("Ben rows.", ""))
    )
    add_facts(store, doubted, sure, other)
    alike = await search(store, recipe + stages, 1.0)
    assert alike.hits[0].fact.id == doubted.id
    assert "unconfirmed" not in alike.hits[0].explain

    report = await search(store, recipe + stages, 0.01)
    first, last = (hit for hit in report.hits if hit.fact.id != other.id)
    assert [first.fact.id, last.fact.id] == [sure.id, doubted.id]
    assert "unconfirmed" not in first.explain
    figures = last.explain["unconfirmed"]
    assert figures["score"] == pytest.approx(0.01 * figures["score_before"])
    assert (figures["weight"], figures["rank_before"], figures["rank"]) == (0.01, 1, 2)
    assert 0 <= last.score <= 1


def test_the_default_prefers_confirmed_facts() -> None:
    assert SearchSettings().unconfirmed_weight == 0.8
