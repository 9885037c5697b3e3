"""The first pass on vectors whose signs say little: it looks deeper, and loses next to nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import make_fact
from tests.support.exhaustive import spared
from tests.support.memory import add_fact, add_facts

pytestmark = pytest.mark.slow


SCOPE = Scope.agent(new_id())
MINE = FactFilter(scopes=(SCOPE,))

Floats = npt.NDArray[np.float64]
COUNT, ASKED, DIMENSIONS = 3000, 20, 128


def positive(random: np.random.Generator) -> Floats:
    """As of a model that ends in a rectifier: every code is the same."""
    return np.abs(random.standard_normal((COUNT + ASKED, DIMENSIONS)))


def ruled(random: np.random.Generator) -> Floats:
    """Three dimensions say nearly all, as in many transformers."""
    points = random.standard_normal((COUNT + ASKED, DIMENSIONS))
    points[:, :3] *= 30
    return points


def short(random: np.random.Generator) -> Floats:
    """Sixteen codes for all."""
    return random.standard_normal((COUNT + ASKED, 4))


def sparse(random: np.random.Generator) -> Floats:
    """As of counted words: one number matters, which is not seen in the signs."""
    points = 0.01 * random.random((COUNT + ASKED, DIMENSIONS))
    points[np.arange(len(points)), random.integers(0, DIMENSIONS, len(points))] = 1
    return points


@pytest.mark.parametrize("kind", [positive, ruled, short, sparse])
@pytest.mark.parametrize("floor", [0.0, spared(0.65)])
def test_vectors_whose_signs_say_little_are_found(
    opened: SqliteStore, kind: Callable[[np.random.Generator], Floats], floor: float
) -> None:
    """Known failure 29: what was there was not found, and nobody said so."""
    points = kind(np.random.default_rng(7)).astype("<f4")
    add_facts(
        opened,
        *(
            make_fact(SCOPE, f"fact {n}", embedding=point.tobytes(), embedding_model="m")
            for n, point in enumerate(points[ASKED:])
        ),
    )
    queries = [point.tobytes() for point in points[:ASKED]]
    found, exact = (
        opened.search.semantic_candidates(
            MINE, queries, model="m", limit=10, exact=all_, floor=floor
        )
        for all_ in (False, True)
    )
    hits = sum(
        sum(one.score >= right[-1].score - 2e-6 for one in got)
        for got, right in zip(found, exact, strict=True)
        if right
    )
    assert hits >= 0.995 * sum(map(len, exact))


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30, 3e37])
def test_a_vector_of_any_length_is_found(opened: SqliteStore, scale: float) -> None:
    """The squares of such numbers are nought or infinite as float32."""
    points = np.random.default_rng(8).standard_normal((400, 64))
    odd = (points[0] * scale).astype("<f4").tobytes()
    fact = add_fact(opened, SCOPE, "odd", embedding=odd, embedding_model="m")
    add_facts(
        opened,
        *(
            make_fact(SCOPE, f"fact {n}", embedding=p.astype("<f4").tobytes(), embedding_model="m")
            for n, p in enumerate(points[1:])
        ),
    )
    for query in (odd, points[0].astype("<f4").tobytes()):
        for exact in (False, True):
            [found] = opened.search.semantic_candidates(
                MINE, [query], model="m", limit=5, exact=exact
            )
            assert found[0].fact_id == fact.id
            assert found[0].score == pytest.approx(1, abs=1e-4)
            assert len(found) == 5
