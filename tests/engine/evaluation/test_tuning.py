"""Looking for better settings, without being fooled by chance."""

from __future__ import annotations

import random

import msgspec
import pytest

from edenmem.engine.evaluation import tuning
from edenmem.engine.evaluation.evaluator import Evaluator
from edenmem.engine.evaluation.queries import LabeledQuery, read_queries
from edenmem.engine.evaluation.tuning import LEAST_QUERIES, Tuning, tune
from edenmem.errors import UsageError
from edenmem.search.recipes import recipe
from edenmem.settings.schema import SearchSettings, Settings
from tests.engine.evaluation.conftest import Memory, line
from tests.support.runtime import make_runtime

COUNT = 24
NAMES = [f"{first}{second}" for first in "bdfgkm" for second in ("ova", "ilo", "aru", "ent")]


@pytest.fixture
def queries(memory: Memory) -> tuple[LabeledQuery, ...]:
    """Queries of which each is answered by a fact that shares words with it, and one by none."""
    texts = [f"{name} keeps the {name[::-1]} in the hall" for name in NAMES]
    ids = memory.add(memory.cast.anna_scope, *texts)
    lines = [
        line(f"where does {name} keep it", user="anna", relevant=[id])
        for name, id in zip(NAMES, ids, strict=True)
    ]
    return read_queries(memory.store, [*lines, line("zeppelin", user="anna")]).queries


def of(memory: Memory, settings: SearchSettings) -> Evaluator:
    return Evaluator(
        make_runtime(memory.store, Settings(search=settings), embedder=memory.embedder)
    )


@pytest.mark.slow
async def test_bad_settings_are_found_out(
    memory: Memory, queries: tuple[LabeledQuery, ...]
) -> None:
    """By meaning alone, with a floor that nothing reaches, nothing is found."""
    bad = SearchSettings(recipe="semantic", semantic_floor=0.99)
    found = await tune(of(memory, bad), queries, bad)
    assert found.queries == COUNT
    assert found.current_ndcg == 0.0
    assert found.held_out_ndcg == pytest.approx(1.0)
    assert not found.is_noise
    better = msgspec.convert({**msgspec.to_builtins(bad), **found.changes}, SearchSettings)
    assert (await tune(of(memory, better), queries, better)).current_ndcg == found.best_ndcg


@pytest.mark.slow
async def test_good_settings_are_left_alone(
    memory: Memory, queries: tuple[LabeledQuery, ...]
) -> None:
    good = SearchSettings(recipe="text")
    found = await tune(of(memory, good), queries, good)
    assert found.current_ndcg == found.best_ndcg == pytest.approx(1.0)
    assert found.is_noise
    assert found.changes == {}
    assert found.best == {"recipe": "text"}


async def test_only_named_recipes_are_tried_and_nothing_is_written(
    memory: Memory, queries: tuple[LabeledQuery, ...]
) -> None:
    settings = SearchSettings(recipe="semantic", semantic_floor=0.99)
    found = await tune(of(memory, settings), queries, settings, recipes=["rrf"])
    assert found.best["recipe"] == "rrf"
    assert set(found.changes) <= {"recipe", "rrf_k", "semantic_floor"}
    assert memory.accesses(memory.cast.anna_scope) == 0


@pytest.mark.slow
async def test_the_same_queries_give_the_same_result(
    memory: Memory, queries: tuple[LabeledQuery, ...]
) -> None:
    settings = SearchSettings(recipe="semantic", semantic_floor=0.6)
    first = await tune(of(memory, settings), queries, settings)
    assert await tune(of(memory, settings), queries, settings) == first


async def test_a_few_queries_say_nothing(memory: Memory, queries: tuple[LabeledQuery, ...]) -> None:
    settings = SearchSettings()
    few = [*queries[: LEAST_QUERIES - 1], queries[-1]]  # the last one has no answer
    with pytest.raises(UsageError, match=f"at least {LEAST_QUERIES} queries"):
        await tune(of(memory, settings), few, settings)


async def test_the_settings_in_force_must_be_able_to_run(
    memory: Memory, queries: tuple[LabeledQuery, ...]
) -> None:
    bare = Evaluator(make_runtime(memory.store))
    with pytest.raises(UsageError, match="needs an embedding model"):
        await tune(bare, queries, SearchSettings(recipe="convex"))


def trials(count: int) -> list[tuning._Trial]:
    return [
        tuning._Trial(recipe("rrf"), SearchSettings(recipe="rrf", rrf_k=60 + place))
        for place in range(count)
    ]


def chosen(table: list[list[float]]) -> Tuning:
    return tuning._choose(trials(len(table)), table)


def test_the_best_of_many_that_are_chance_is_noise() -> None:
    """Chosen on all queries the best of 200 looks better; on queries it has not seen, it is not."""
    chance = random.Random(7)
    found = chosen([[chance.random() for _ in range(60)] for _ in range(200)])
    assert found.best_ndcg - found.current_ndcg > 0.05
    assert found.held_out_ndcg < found.best_ndcg
    assert found.is_noise


def test_a_true_gain_is_seen_and_has_a_spread() -> None:
    chance = random.Random(7)
    base = [chance.random() / 2 for _ in range(60)]
    found = chosen([base, [value + 0.2 + chance.random() / 10 for value in base]])
    assert not found.is_noise
    assert 0.2 < found.gain < 0.3
    assert 0 < found.spread < 0.01
    assert found.folds_agree == 1.0


def test_the_spread_is_the_standard_error_of_the_mean() -> None:
    # 1, 2, 3, 4: variance 5/3, over n = 4: sqrt(5/12)
    assert tuning._standard_error([1, 2, 3, 4]) == pytest.approx(0.6454972243679028)


def test_of_equals_the_settings_in_force_stay() -> None:
    found = chosen([[0.5] * 20, [0.5] * 20])
    assert found.changes == {}
    assert found.gain == found.spread == 0.0


def test_held_out_figures_are_of_settings_chosen_without_them() -> None:
    """A setting that is right for one query alone is never chosen for that one."""
    table = [[0.0] * 20]
    for place in range(20):
        table.append([1.0 if query == place else 0.0 for query in range(20)])
    found = chosen(table)
    assert found.best_ndcg == pytest.approx(1 / 20)
    assert found.held_out_ndcg == 0.0
