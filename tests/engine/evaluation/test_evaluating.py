"""Measuring recipes."""

from __future__ import annotations

import math

import pytest

from edenmem.engine.evaluation import Evaluator, read_queries
from edenmem.engine.search.searcher import Searcher
from edenmem.errors import EmbeddingModelMismatch, UsageError
from edenmem.search.metrics import ndcg, recall, reciprocal_rank
from edenmem.settings.schema import SearchSettings, Settings
from tests.engine.evaluation.conftest import Memory, line
from tests.support.embedder import FakeEmbedder
from tests.support.evaluation import overall
from tests.support.runtime import make_runtime

SETTINGS = Settings(search=SearchSettings(semantic_floor=0.55))
TEXTS = (
    "Anna lives in Lisbon near the river.",
    "Anna has a grey cat called Miso.",
    "Anna works as a marine biologist.",
    "Anna plays the cello in a quartet.",
    "Anna sold the grey car in March.",
)
QUESTIONS: tuple[tuple[str, list[int]], ...] = (
    ("grey cat", [1]),
    ("what does Anna play in the quartet", [3]),
    ("the grey things of Anna", [1, 4]),
    ("biologist in Lisbon", [0, 2]),
    ("zeppelin", []),
)


@pytest.fixture
def lines(memory: Memory) -> list[str]:
    """The questions, the facts of which are stored."""
    ids = memory.add(memory.cast.anna_scope, *TEXTS)
    return [
        line(text, user="anna", relevant=[ids[place] for place in places], kind=text.split()[0])
        for text, places in QUESTIONS
    ]


def evaluator(memory: Memory, embedder: FakeEmbedder | None = None) -> Evaluator:
    return Evaluator(make_runtime(memory.store, SETTINGS, embedder=embedder))


@pytest.mark.parametrize("top_k", [1, 3, 10, 30])
async def test_the_figures_are_those_of_the_searches(
    memory: Memory, lines: list[str], top_k: int
) -> None:
    """What is measured is what a search gives, recipe by recipe."""
    read = read_queries(memory.store, lines)
    evaluation = await evaluator(memory, memory.embedder).evaluate(read.queries, top_k=top_k)
    assert [score.recipe for score in overall(evaluation)] == ["convex", "rrf", "semantic", "text"]
    searcher = Searcher(make_runtime(memory.store, SETTINGS, embedder=memory.embedder))
    for score in overall(evaluation):
        found = []
        for query in read.queries:
            searched = await searcher.search(
                [query.query],
                query.scopes,
                recipe=score.recipe,
                top_k=max(top_k, 10),
                track=False,
            )
            ids = [hit.fact.id for hit in searched.hits]
            if query.relevant:
                found.append((ids, query.relevant))
            else:
                assert score.silent == (not ids)
        assert score.queries == len(found) == 4
        assert score.unanswerable == 1
        for figure, measure, k in (
            (score.recall, recall, top_k),
            (score.mrr, reciprocal_rank, 10),
            (score.ndcg, ndcg, 10),
        ):
            wanted = sum(measure(ids, relevant, k=k) for ids, relevant in found) / 4
            assert figure == pytest.approx(wanted)


async def test_a_table_worked_out_by_hand(memory: Memory) -> None:
    """Words alone: 'cat' finds one fact, 'grey' two, of which the newer one is first."""
    cat, _ = memory.add(memory.cast.anna_scope, "grey cat", "grey car in the long street")
    read = read_queries(
        memory.store,
        [
            line("cat", user="anna", relevant=[cat]),
            line("grey", user="anna", relevant=[cat]),
            line("dog", user="anna", relevant=[cat]),
        ],
    )
    (score,) = (await evaluator(memory).evaluate(read.queries, recipes=["text"], top_k=1)).scores
    assert score.recall == pytest.approx(1 / 3)
    assert score.mrr == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert score.ndcg == pytest.approx((1 + 1 / math.log2(3) + 0) / 3)


async def test_facts_are_never_found_for_another_user(memory: Memory) -> None:
    memory.add(memory.cast.bruno_scope, *TEXTS)
    read = read_queries(memory.store, [line("Anna grey cat", user="anna")])
    evaluation = await evaluator(memory, memory.embedder).evaluate(read.queries)
    assert [(score.silent, score.unanswerable) for score in overall(evaluation)] == [(1, 1)] * 4
    assert all(math.isnan(score.ndcg) for score in overall(evaluation))


async def test_each_query_is_embedded_once_and_no_access_is_counted(
    memory: Memory, lines: list[str]
) -> None:
    read = read_queries(memory.store, [*lines, lines[0]])
    await evaluator(memory, memory.embedder).evaluate(read.queries)
    assert memory.embedder.calls == [tuple(text for text, _ in QUESTIONS)]
    assert memory.accesses(memory.cast.anna_scope) == 0


async def test_kinds_add_up_to_the_whole(memory: Memory, lines: list[str]) -> None:
    read = read_queries(memory.store, lines)
    evaluation = await evaluator(memory, memory.embedder).evaluate(read.queries, recipes=["convex"])
    (whole,) = overall(evaluation)
    kinds = [score for score in evaluation.scores if score.kind]
    assert [score.kind for score in kinds] == ["grey", "what", "the", "biologist", "zeppelin"]
    answered = [score for score in kinds if score.queries]
    assert whole.ndcg == pytest.approx(sum(score.ndcg for score in answered) / 4)
    assert sum(score.unanswerable for score in kinds) == whole.unanswerable == 1


async def test_without_a_model_what_can_run_runs_and_it_is_said(
    memory: Memory, lines: list[str]
) -> None:
    read = read_queries(memory.store, lines)
    evaluation = await evaluator(memory).evaluate(read.queries)
    assert [score.recipe for score in overall(evaluation)] == ["text"]
    assert "no embedding model" in evaluation.notices[0]


async def test_what_cannot_be_measured_is_refused(memory: Memory, lines: list[str]) -> None:
    read = read_queries(memory.store, lines)
    bare = evaluator(memory)
    with pytest.raises(UsageError, match="needs an embedding model"):
        await bare.evaluate(read.queries, recipes=["rrf"])
    with pytest.raises(UsageError, match="unknown search recipe: 'best'"):
        await bare.evaluate(read.queries, recipes=["best"])
    with pytest.raises(UsageError, match="no queries"):
        await bare.evaluate([])
    other = evaluator(memory, FakeEmbedder(model="another"))
    with pytest.raises(EmbeddingModelMismatch):
        await other.evaluate(read.queries)
