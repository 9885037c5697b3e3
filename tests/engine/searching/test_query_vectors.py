"""Vectors of queries are asked of the model once."""

from __future__ import annotations

import pytest

from edenmem.engine.search.searcher import QueryVectors
from edenmem.errors import ProviderTimeout
from tests.support.embedder import FakeEmbedder


async def test_a_repeated_query_costs_no_call(embedder: FakeEmbedder) -> None:
    vectors = QueryVectors(embedder, 9)
    first = await vectors.of(["a", "b", "a"])
    assert first == (embedder.vector("a"), embedder.vector("b"), embedder.vector("a"))
    assert embedder.calls == [("a", "b")]
    assert await vectors.of(["b", "c"]) == (embedder.vector("b"), embedder.vector("c"))
    assert embedder.calls == [("a", "b"), ("c",)]


async def test_the_least_lately_asked_go_first(embedder: FakeEmbedder) -> None:
    vectors = QueryVectors(embedder, 2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await vectors.of([text])
    assert embedder.texts == ["a", "b", "c", "b"]


async def test_zero_keeps_nothing(embedder: FakeEmbedder) -> None:
    vectors = QueryVectors(embedder, 0)
    for _ in range(2):
        await vectors.of(["a"])
    assert embedder.texts == ["a", "a"]


async def test_a_failure_is_not_kept(embedder: FakeEmbedder) -> None:
    vectors = QueryVectors(embedder, 9)
    embedder.failures = [ProviderTimeout("no")]
    with pytest.raises(ProviderTimeout):
        await vectors.of(["a"])
    assert await vectors.of(["a"]) == (embedder.vector("a"),)
