"""Embeddings from an endpoint: the real client library against a strict server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from edenmem.embed.openai_compat import OpenAIEmbedder
from edenmem.endpoint.budget import Budget
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    InputError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderTimeout,
)
from edenmem.settings.schema import EmbeddingSettings
from tests.support.fake_openai import KEY, FakeOpenAI, Reply, embeddings, failing, fake_vector
from tests.support.waiting import no_waits


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@asynccontextmanager
async def connected(
    server: FakeOpenAI, *, budget: Budget | None = None, **settings: Any
) -> AsyncIterator[OpenAIEmbedder]:
    known: dict[str, Any] = {"base_url": server.url, "api_key": KEY, "model": "mini"}
    embedder = OpenAIEmbedder(EmbeddingSettings(**(known | settings)), budget=budget)
    try:
        with no_waits():
            yield embedder
    finally:
        await embedder.close()


def unit(vector: list[float]) -> Any:
    return np.array(vector) / np.linalg.norm(vector)


async def test_vectors_come_in_order_in_few_calls_and_at_unit_length(server: FakeOpenAI) -> None:
    texts = [f"fact {number}" for number in range(25)]
    async with connected(server, batch_size=10, prices={"mini": 0.02}) as embedder:
        embedding = await embedder.embed(texts)
    assert [len(body["input"]) for body in server.requests] == [10, 10, 5]
    for text, vector in zip(texts, embedding.vectors, strict=True):
        assert np.allclose(np.frombuffer(vector, "<f4"), unit(fake_vector(text, 8)), atol=1e-6)
    assert [call.input_tokens for call in embedding.usage] == [70, 70, 35]
    assert embedding.usage[0].task == "embed"
    assert embedding.usage[0].cost == pytest.approx(70 * 0.02 / 1e6)


async def test_no_texts_no_call(server: FakeOpenAI) -> None:
    async with connected(server) as embedder:
        assert (await embedder.embed([])).vectors == ()
    assert server.requests == []


async def test_order_is_by_index_not_by_arrival(server: FakeOpenAI) -> None:
    server.script.append(embeddings([0, 1.0], [1.0, 0], indexes=[1, 0]))
    async with connected(server) as embedder:
        first, second = (await embedder.embed(["a", "b"])).vectors
    assert np.frombuffer(first, "<f4").tolist() == [1, 0]
    assert np.frombuffer(second, "<f4").tolist() == [0, 1]


@pytest.mark.parametrize(
    ("model", "dimensions", "name", "size"),
    [
        ("text-embedding-3-small", 0, "text-embedding-3-small", 1536),
        ("text-embedding-3-small", 1536, "text-embedding-3-small", 1536),
        ("text-embedding-3-large", 256, "text-embedding-3-large@256", 256),
        ("mini", 8, "mini", 8),
    ],
)
async def test_known_dimensions_and_shorter_ones(
    server: FakeOpenAI, model: str, dimensions: int, name: str, size: int
) -> None:
    """Known failure 28: vectors of two spaces never share a name."""
    async with connected(server, model=model, dimensions=dimensions) as embedder:
        assert (embedder.model, embedder.dimensions) == (name, size)
        (vector,) = (await embedder.embed(["a"])).vectors
    assert len(vector) == 4 * size
    assert ("dimensions" in server.requests[0]) == ("@" in name)


async def test_the_dimensions_of_an_unknown_model_are_learned_and_then_held(
    server: FakeOpenAI,
) -> None:
    async with connected(server) as embedder:
        with pytest.raises(ConfigError, match="unknown number of dimensions") as caught:
            _ = embedder.dimensions
        assert caught.value.hint == "set embedding.dimensions"
        await embedder.embed(["a"])
        assert embedder.dimensions == 8
        server.script += [embeddings([1.0, 2.0])] * 2
        with pytest.raises(ProviderAnswerInvalid, match="2 dimensions, expected 8"):
            await embedder.embed(["b"])


@pytest.mark.parametrize(
    "reply",
    [
        embeddings([1.0] * 8),
        embeddings([1.0] * 8, [1.0] * 8, [1.0] * 8),
        embeddings([1.0] * 8, [1.0] * 8, indexes=[0, 0]),
        embeddings([1.0] * 8, [1.0] * 7),
        embeddings([1.0] * 8, [0.0] * 8),
        Reply(body=b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1]}]}'),
        embeddings([1.0] * 8, ["x"] * 8),
        embeddings([1.0] * 8, None),
        embeddings([1.0] * 3, [1.0] * 3),
        Reply(body={"object": "list"}),
        Reply(body={"data": [1, 2]}),
        Reply(body=b"<html>", headers={"Content-Type": "text/html"}),
    ],
)
async def test_an_answer_that_is_not_what_was_asked_is_asked_again_and_then_fails(
    server: FakeOpenAI, reply: Reply
) -> None:
    """Known failures 27 and 29: no zeros, no missing vectors, no empty list in silence."""
    async with connected(server, dimensions=8) as embedder:
        server.script.append(reply)
        assert len((await embedder.embed(["a", "b"])).vectors) == 2
        server.script += [reply, reply]
        with pytest.raises(ProviderAnswerInvalid):
            await embedder.embed(["a", "b"])
    assert len(server.requests) == 4


async def test_failures_of_the_endpoint_are_those_of_any(server: FakeOpenAI) -> None:
    async with connected(server, retries=1) as embedder:
        server.script += [failing(503), failing(429)]
        with pytest.raises(ProviderError, match="429"):
            await embedder.embed(["a"])
        server.script.append(failing(401, f"bad key {KEY}"))
        with pytest.raises(ProviderAuthError) as caught:
            await embedder.embed(["a"])
        assert KEY not in str(caught.value)
        assert "embedding.api_key" in (caught.value.hint or "")
        server.script.append(failing(500))
        assert len((await embedder.embed(["a"])).vectors) == 1
    async with connected(server, retries=1, timeout_seconds=0.2) as embedder:
        server.script += [Reply(hang=True)] * 2
        with pytest.raises(ProviderTimeout, match=r"0\.2 s"):
            await embedder.embed(["a"])


async def test_an_unknown_model_names_the_setting(server: FakeOpenAI) -> None:
    async with connected(server, model="none") as embedder:
        with pytest.raises(ProviderError, match="'none'") as caught:
            await embedder.embed(["a"])
    assert "embedding.model" in (caught.value.hint or "")


async def test_long_and_strange_texts(server: FakeOpenAI) -> None:
    async with connected(server) as embedder:
        await embedder.embed(["long " * 20_000, "🙂 \x00\ud800", *["y" * 8_000] * 30])
        assert [len(body["input"]) for body in server.requests] == [25, 7]
        assert server.requests[0]["input"][1] == "🙂"
        with pytest.raises(InputError, match="empty: 1 of 1"):
            await embedder.embed([" "])


async def test_uncounted_tokens_are_estimated(server: FakeOpenAI) -> None:
    reply = embeddings([1.0] * 8)
    del reply.body["usage"]
    server.script.append(reply)
    async with connected(server, prices={"mini": 1.0}) as embedder:
        (call,) = (await embedder.embed(["a sentence of words"])).usage
    assert (call.input_tokens, call.cost, call.estimated) == (4, pytest.approx(4e-6), True)


# -- the budget of the run -----------------------------------------------------------------------


async def test_embeddings_are_charged_to_the_budget_of_the_run(server: FakeOpenAI) -> None:
    budget = Budget(max_tokens=100)
    async with connected(server, budget=budget, batch_size=10, prices={"mini": 0.02}) as embedder:
        await embedder.embed([f"fact {number}" for number in range(10)])
        assert budget.tokens == 70
        assert budget.cost == pytest.approx(70 * 0.02 / 1e6)
        with pytest.raises(BudgetExceeded) as caught:
            await embedder.embed([f"fact {number}" for number in range(30)])
    assert len(server.requests) == 2
    assert [call.input_tokens for call in caught.value.usage] == [70]


async def test_a_limit_in_money_needs_a_price(server: FakeOpenAI) -> None:
    async with connected(server, budget=Budget(max_cost=1.0), prices={}) as embedder:
        with pytest.raises(ConfigError, match=r"embedding\.prices"):
            await embedder.embed(["a fact"])
    assert server.requests == []


async def test_a_failure_has_the_cost_of_earlier_batches(server: FakeOpenAI) -> None:
    async with connected(server, batch_size=10) as embedder:
        await embedder.embed(["one"])
        answers = server.requests
        server.script += [embeddings(*[[1.0, 0.0]] * 10), failing(401)]
        with pytest.raises(ProviderAuthError) as caught:
            await embedder.embed([f"fact {number}" for number in range(20)])
    assert len(answers) == 3
    assert len(caught.value.usage) == 1
