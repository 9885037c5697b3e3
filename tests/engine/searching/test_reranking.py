"""Stages after fusion in a whole search: a real cross-encoder, recency and diversity behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.evaluation import Evaluator, LabeledQuery
from edenmem.engine.reports import SearchReport
from edenmem.engine.search.searcher import Searcher
from edenmem.engine.search.why_not import MissExplainer
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, ProviderTimeout
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.onnx import ModelFolder
from edenmem.rerank.local import LocalReranker
from edenmem.settings.schema import SearchSettings, Settings
from edenmem.store.protocol.store import Store
from tests.engine.conftest import Cast
from tests.support.builders import FixedClock, ago, make_fact
from tests.support.cross_encoder import cross_encoder, relevance
from tests.support.embedder import FakeEmbedder
from tests.support.evaluation import overall
from tests.support.memory import add_facts
from tests.support.runtime import make_runtime

QUERY = "what is the name of the grey cat of Anna"
#: What each shares with the query, words counted as often as they are in both.
FACTS = {
    "Anna has a grey cat called Miso.": 3,
    "The name of the grey cat is what Ben does.": 12,
    "Anna plays the cello.": 3,
    "Ben prefers tea.": 0,
}


class Reading:
    """A reranker that gives texts the scores it was told, and remembers what it read."""

    model = "told"

    def __init__(self, scores: dict[str, float] | None = None) -> None:
        self.scores = scores or {}
        self.read: list[tuple[str, tuple[str, ...]]] = []
        self.failure: Exception | None = None

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        if self.failure is not None:
            raise self.failure
        self.read.append((query, tuple(documents)))
        return tuple(self.scores.get(text, 0.0) for text in documents)

    async def close(self) -> None: ...


def settings(**search: Any) -> Settings:
    return Settings(search=SearchSettings(**{"semantic_floor": 0.0} | search))


def add(
    store: Store, embedder: FakeEmbedder, scope: Scope, *texts: str, **fields: Any
) -> list[Fact]:
    facts = [
        make_fact(
            scope, text, embedding=embedder.vector(text), embedding_model=embedder.model, **fields
        )
        for text in texts
    ]
    add_facts(store, *facts)
    return facts


def contents(report: SearchReport) -> list[str]:
    return [hit.fact.content for hit in report.hits]


async def test_a_real_cross_encoder_orders_what_fusion_found(
    cast: Cast, embedder: FakeEmbedder, tmp_path: Path
) -> None:
    """By hand: its logit is 2 × (pairs of equal words) − 3."""
    add(cast.store, embedder, cast.anna_scope, *FACTS)
    folder = cross_encoder(tmp_path / "tiny")
    local = LocalReranker(ModelFolder(folder, setting="search.rerank_path"), threads=1)
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder, reranker=local))
    plain = await searcher.search([QUERY], [cast.anna_scope])
    report = await searcher.search([QUERY], [cast.anna_scope], rerank=True, explain=True)
    await local.close()

    assert report.recipe == "convex+rerank"
    assert "rerank" in report.timings_ms
    assert plain.recipe == "convex"
    assert "rerank" not in plain.timings_ms
    places = {hit.fact.id: (rank, hit.score) for rank, hit in enumerate(plain.hits, 1)}
    for rank, hit in enumerate(report.hits, 1):
        shared = FACTS[hit.fact.content]
        assert hit.score == pytest.approx(relevance(shared), abs=1e-6), hit.fact.content
        said = hit.explain["rerank"]
        assert said["rank"] == rank
        assert said["model"] == "tiny"
        assert (said["rank_before"], said["score_before"]) == places[hit.fact.id]
    shares = [FACTS[text] for text in contents(report)]
    assert shares == sorted(shares, reverse=True)


async def test_stages_come_in_their_order_and_each_says_what_it_did(
    cast: Cast, embedder: FakeEmbedder, clock: FixedClock
) -> None:
    old, new, copy = (
        add(cast.store, embedder, cast.anna_scope, text, formed_at=ago(days=days))[0]
        for text, days in (
            ("Anna has a grey cat.", 300),
            ("Anna has a red cat.", 0),
            ("Anna has a grey cat now.", 290),
        )
    )
    reranker = Reading({old.content: 0.9, copy.content: 0.85, new.content: 0.8})
    searcher = Searcher(
        make_runtime(cast.store, settings(), embedder=embedder, reranker=reranker, clock=clock)
    )
    report = await searcher.search(
        ["grey cat"],
        [cast.anna_scope],
        recipe="convex+mmr+recency",
        rerank=True,
        top_k=2,
        explain=True,
    )
    assert report.recipe == "convex+rerank+recency+mmr"
    assert [stage for stage in report.timings_ms if stage in ("rerank", "recency", "mmr")] == [
        "rerank",
        "recency",
        "mmr",
    ]
    first = report.hits[0]
    assert first.fact.id == new.id, "nearly as relevant, and much newer"
    assert list(first.explain)[-3:] == ["rerank", "recency", "mmr"]
    assert first.explain["rerank"]["rank"] == 3
    assert first.explain["recency"]["rank_before"] == 3
    assert first.explain["recency"]["score_before"] == 0.8
    assert first.explain["recency"]["rank"] == first.explain["mmr"]["rank_before"] == 1
    (dropped,) = report.dropped
    assert dropped.stage == "mmr"
    assert dropped.explain["rerank"]["rank"] in (1, 2)


async def test_only_the_best_are_read_and_the_others_fall_out(
    cast: Cast, embedder: FakeEmbedder
) -> None:
    add(cast.store, embedder, cast.anna_scope, *(f"grey cat {number}" for number in range(12)))
    reranker = Reading()
    searcher = Searcher(
        make_runtime(cast.store, settings(rerank_depth=5), embedder=embedder, reranker=reranker)
    )
    report = await searcher.search(["grey cat"], [cast.anna_scope], rerank=True, explain=True)
    ((query, documents),) = reranker.read
    assert query == "grey cat"
    assert len(documents) == len(report.hits) == 5
    assert {(cut.stage, cut.why.split(", ")[1]) for cut in report.dropped} == {
        ("rerank", "only the best 5 are reranked")
    }


async def test_the_floor_leaves_only_what_answers(cast: Cast, embedder: FakeEmbedder) -> None:
    add(cast.store, embedder, cast.anna_scope, *FACTS)
    reranker = Reading({"Ben prefers tea.": 0.4})
    searcher = Searcher(
        make_runtime(cast.store, settings(rerank_floor=0.3), embedder=embedder, reranker=reranker)
    )
    report = await searcher.search(
        ["what does Ben like"], [cast.anna_scope], rerank=True, explain=True
    )
    assert contents(report) == ["Ben prefers tea."]
    assert {cut.why for cut in report.dropped} == {"relevance 0.000 is below 0.3"}
    assert report.hits[0].explain["rerank"]["threshold"] == 0.3


async def test_each_query_is_read_with_its_own_facts(cast: Cast, embedder: FakeEmbedder) -> None:
    add(cast.store, embedder, cast.anna_scope, "Anna has a grey cat.", "Ben prefers tea.")
    reranker = Reading()
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder, reranker=reranker))
    queries = ["grey cat", "Ben prefers"]
    await searcher.search(queries, [cast.anna_scope], recipe="text+rerank")
    assert sorted(reranker.read) == [
        ("Ben prefers", ("Ben prefers tea.",)),
        ("grey cat", ("Anna has a grey cat.",)),
    ]


async def test_nothing_found_is_nothing_to_read(cast: Cast, embedder: FakeEmbedder) -> None:
    reranker = Reading()
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder, reranker=reranker))
    report = await searcher.search(["cat"], [cast.anna_scope], rerank=True, explain=True)
    assert (report.hits, reranker.read) == ((), [])


async def test_others_facts_are_never_read(cast: Cast, embedder: FakeEmbedder) -> None:
    """Known failure 4's kin: what goes to a third party is of the scopes that were asked for."""
    add(cast.store, embedder, cast.anna_scope, "Anna has a grey cat.")
    add(cast.store, embedder, cast.bruno_scope, "Bruno has a grey cat.")
    reranker = Reading()
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder, reranker=reranker))
    await searcher.search(["grey cat"], [cast.anna_scope], rerank=True, explain=True)
    assert reranker.read == [("grey cat", ("Anna has a grey cat.",))]


async def test_without_a_reranker_it_says_what_to_set(cast: Cast, embedder: FakeEmbedder) -> None:
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder))
    for options in ({"rerank": True}, {"recipe": "text+rerank"}):
        with pytest.raises(ConfigError, match="none is configured") as caught:
            await searcher.search(["cat"], [cast.anna_scope], **options)
        assert "search.rerank_path" in (caught.value.hint or "")
    assert embedder.calls == [], "nothing was paid for"


async def test_a_reranker_that_fails_is_an_error(cast: Cast, embedder: FakeEmbedder) -> None:
    """Known failure 29: an outage never looks like an answer, not even like a worse one."""
    add(cast.store, embedder, cast.anna_scope, *FACTS)
    reranker = Reading()
    reranker.failure = ProviderTimeout("host did not answer")
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder, reranker=reranker))
    with pytest.raises(ProviderTimeout) as caught:
        await searcher.search(["cat"], [cast.anna_scope], rerank=True, explain=True)
    assert "without +rerank" in (caught.value.hint or "")


async def test_a_configured_stage_can_be_left_out(cast: Cast, embedder: FakeEmbedder) -> None:
    add(cast.store, embedder, cast.anna_scope, *FACTS)
    reranker = Reading()
    configured = settings(recipe="convex+rerank+recency")
    searcher = Searcher(make_runtime(cast.store, configured, embedder=embedder, reranker=reranker))
    assert (await searcher.search(["cat"], [cast.anna_scope])).recipe == "convex+rerank+recency"
    less = await searcher.search(["cat"], [cast.anna_scope], rerank=False)
    assert less.recipe == "convex+recency"
    other = await searcher.search(["cat"], [cast.anna_scope], recipe="rrf")
    assert other.recipe == "rrf"
    bare = Searcher(make_runtime(cast.store, configured, reranker=reranker))
    words = await bare.search(["cat"], [cast.anna_scope])
    assert words.recipe == "text+rerank+recency"
    assert "words alone" in words.notices[0]


async def test_the_service_reranks_and_closes_what_it_was_given(
    cast: Cast, embedder: FakeEmbedder
) -> None:
    class Closing(Reading):
        closed = False

        async def close(self) -> None:
            self.closed = True

    add(cast.store, embedder, cast.anna_scope, *FACTS)
    reranker = Closing({"Ben prefers tea.": 1.0})
    service = MemoryService(cast.store, settings(), embedder=embedder, reranker=reranker)
    report = await service.search(["cat"], agent_id=cast.eve.id, user_id=cast.anna.id, rerank=True)
    assert contents(report)[0] == "Ben prefers tea."
    await service.close()
    assert reranker.closed


class TestWhyNot:
    async def ask(
        self, cast: Cast, embedder: FakeEmbedder, reranker: Reading, fact: Fact, **search: Any
    ) -> Any:
        explainer = MissExplainer(
            make_runtime(cast.store, settings(**search), embedder=embedder, reranker=reranker)
        )
        return await explainer.why_not(fact.id, "grey cat", [cast.anna_scope], rerank=True, top_k=2)

    async def test_the_stage_that_put_it_down_is_named(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        facts = add(
            cast.store, embedder, cast.anna_scope, "grey cat", "grey cat one", "grey cat two"
        )
        reranker = Reading({"grey cat one": 0.9, "grey cat two": 0.8})
        answer = await self.ask(cast, embedder, reranker, facts[0])
        assert answer.recipe == "convex+rerank"
        assert answer.stage == "top_k"
        assert answer.why == "rank 3 of 3, top_k is 2; rerank put it from rank 1 to 3"
        assert answer.explain["rerank"]["score"] == 0.0
        assert "--recipe" in answer.advice

    async def test_a_fact_that_was_not_read(self, cast: Cast, embedder: FakeEmbedder) -> None:
        facts = add(cast.store, embedder, cast.anna_scope, "grey cat", "a cat in the house")
        answer = await self.ask(cast, embedder, Reading(), facts[1], rerank_depth=1)
        assert answer.stage == "rerank"
        assert "only the best 1 are reranked" in answer.why
        assert "search.rerank_depth" in answer.advice

    async def test_a_fact_below_the_floor(self, cast: Cast, embedder: FakeEmbedder) -> None:
        (fact,) = add(cast.store, embedder, cast.anna_scope, "grey cat")
        answer = await self.ask(cast, embedder, Reading(), fact, rerank_floor=0.5)
        assert answer.stage == "rerank"
        assert answer.why == "relevance 0.000 is below 0.5"
        assert "search.rerank_floor" in answer.advice


class TestEvaluation:
    def query(self, scope: Scope, text: str, *relevant: Fact) -> LabeledQuery:
        return LabeledQuery(
            line=1, query=text, scopes=(scope,), relevant=frozenset(one.id for one in relevant)
        )

    async def test_a_recipe_with_stages_is_measured_as_a_search_goes(
        self, cast: Cast, embedder: FakeEmbedder, clock: FixedClock
    ) -> None:
        old, _, other = (
            add(cast.store, embedder, cast.anna_scope, text, formed_at=ago(days=days))[0]
            for text, days in (
                ("Anna has a grey cat.", 900),
                ("Anna has a grey cat and a dog and a house and a boat.", 0),
                ("Ben prefers tea over coffee in a grey cup.", 900),
            )
        )
        reranker = Reading({other.content: 1.0, old.content: 0.5})
        configured = settings(recency_weight=0.9)
        runtime = make_runtime(
            cast.store, configured, embedder=embedder, reranker=reranker, clock=clock
        )
        evaluator, searcher = Evaluator(runtime), Searcher(runtime)
        query = self.query(cast.anna_scope, "grey cat", other)
        names = ["convex", "convex+recency", "convex+rerank", "text+rerank+mmr"]
        measured = await evaluator.evaluate([query], recipes=names)
        assert [score.recipe for score in overall(measured)] == names
        for score in overall(measured):
            report = await searcher.search(["grey cat"], [cast.anna_scope], recipe=score.recipe)
            place = [hit.fact.id for hit in report.hits].index(other.id) + 1
            assert score.mrr == pytest.approx(1 / place), score.recipe
        assert [score.mrr == 1.0 for score in overall(measured)] == [False, False, True, True]

    async def test_the_configured_recipe_is_measured_with_the_others(
        self, cast: Cast, embedder: FakeEmbedder
    ) -> None:
        (fact,) = add(cast.store, embedder, cast.anna_scope, "grey cat")
        evaluator = Evaluator(
            make_runtime(cast.store, settings(recipe="rrf+mmr"), embedder=embedder)
        )
        measured = await evaluator.evaluate([self.query(cast.anna_scope, "cat", fact)])
        assert [score.recipe for score in overall(measured)] == [
            *("convex", "rrf", "semantic", "text"),
            "rrf+mmr",
        ]

    async def test_to_rerank_takes_a_reranker(self, cast: Cast, embedder: FakeEmbedder) -> None:
        (fact,) = add(cast.store, embedder, cast.anna_scope, "grey cat")
        evaluator = Evaluator(make_runtime(cast.store, settings(), embedder=embedder))
        with pytest.raises(ConfigError, match="none is configured"):
            await evaluator.evaluate(
                [self.query(cast.anna_scope, "cat", fact)], recipes=["text+rerank"]
            )


async def test_several_searches_at_once(cast: Cast, embedder: FakeEmbedder, tmp_path: Path) -> None:
    add(cast.store, embedder, cast.anna_scope, *FACTS)
    folder = cross_encoder(tmp_path / "tiny")
    local = LocalReranker(ModelFolder(folder, setting="search.rerank_path"), threads=1)
    searcher = Searcher(make_runtime(cast.store, settings(), embedder=embedder, reranker=local))
    found = await asyncio.gather(
        *(searcher.search([QUERY], [cast.anna_scope], rerank=True, explain=True) for _ in range(5))
    )
    await local.close()
    assert len({tuple(contents(report)) for report in found}) == 1
