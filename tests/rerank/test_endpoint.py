"""Reranking by an endpoint: the real client library against a strict server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.endpoint.budget import Budget
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderMisconfigured,
    ProviderTimeout,
)
from edenmem.rerank.endpoint import EndpointReranker, _in_order
from edenmem.settings.schema import SearchSettings
from tests.support.fake_openai import KEY, Reply
from tests.support.fake_rerank import MODEL, FakeRerank, relevance, results
from tests.support.waiting import no_waits

pytestmark = pytest.mark.slow

QUERY = "grey cat"
DOCUMENTS = ["Ben prefers tea.", "Anna has a grey cat.", "A cat."]


@pytest.fixture
def server() -> Iterator[FakeRerank]:
    with FakeRerank() as fake:
        yield fake


@asynccontextmanager
async def connected(
    server: FakeRerank, *, budget: Budget | None = None, **settings: Any
) -> AsyncIterator[tuple[EndpointReranker, list[float]]]:
    """A reranker, and the seconds that it waited."""
    known = {"rerank_url": server.url, "rerank_api_key": KEY, "rerank_model": MODEL}
    reranker = EndpointReranker(SearchSettings(**(known | settings)), budget=budget)
    try:
        with no_waits() as waited:
            yield reranker, waited
    finally:
        await reranker.close()


async def scores(server: FakeRerank, **settings: Any) -> tuple[float, ...]:
    async with connected(server, **settings) as (reranker, _):
        return await reranker.score(QUERY, DOCUMENTS)


async def test_scores_come_in_the_order_of_the_documents(server: FakeRerank) -> None:
    assert await scores(server) == (0.0, 1.0, 0.5)
    [body] = server.requests
    assert body == {"model": MODEL, "query": QUERY, "documents": DOCUMENTS, "top_n": 3}


async def test_the_address_may_leave_out_the_last_part(server: FakeRerank) -> None:
    without = server.url.removesuffix("/rerank")
    assert await scores(server, rerank_url=without) == (0.0, 1.0, 0.5)
    assert await scores(server, rerank_url=f"{without}/") == (0.0, 1.0, 0.5)


async def test_many_documents_are_batched_and_none_makes_no_call(server: FakeRerank) -> None:
    documents = [f"cat {number}" if number % 3 else "tea" for number in range(230)]
    async with connected(server) as (reranker, _):
        assert await reranker.score(QUERY, []) == ()
        found = await reranker.score(QUERY, documents)
    assert found == tuple(relevance(QUERY, document) for document in documents)
    assert [len(body["documents"]) for body in server.requests] == [100, 100, 30]


async def test_logits_become_probabilities_only_if_settings_say_that_they_are(
    server: FakeRerank,
) -> None:
    """llama.cpp gives logits in the same form."""
    raw = results((1, 7.74), (2, 0.0), (0, -11.01))
    server.script += [raw]
    found = await scores(server, rerank_scores="logits")
    assert found == (pytest.approx(0, abs=1e-4), pytest.approx(1, abs=1e-3), 0.5)
    server.script += [raw, raw]
    with pytest.raises(ProviderAnswerInvalid, match=r"score outside 0 to 1: -11\.01") as caught:
        await scores(server)
    assert 'rerank_scores = "logits"' in (caught.value.hint or "")


# -- answers that are not what was asked for -----------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (results((0, 0.1), (1, 0.2), (3, 0.3)), "unknown document: 3"),
        (results((0, 0.1), (1, 0.2), (-1, 0.3)), "unknown document: -1"),
        (results((0, 0.1), (1, 0.2), (1, 0.3)), "document twice: 1"),
        (results((0, 0.1), (2, 0.3)), "2 scores for 3 documents"),
        (results((0, 0.1), (1, 0.2), (2, 0.3), (2, 0.3)), "document twice: 2"),
        (results((0, 0.1), (1, 0.2), (2, float("nan"))), "without index and relevance_score"),
        (results((0, 0.1), (1, 0.2), (2, float("inf"))), "without index and relevance_score"),
        (results((0, 0.1), (1, 0.2), (2, 10**400)), "without index and relevance_score"),
        (results((0, 0.1), (1, 0.2), (2, -0.5)), "score outside 0 to 1: -0.5"),
        (results((0, 0.1), (1, 0.2), (2, "0.5")), "without index and relevance_score"),
        (results((0, 0.1), (1, 0.2), (2, True)), "without index and relevance_score"),
        (results((0, 0.1), (1, 0.2), ("2", 0.5)), "without index and relevance_score"),
        (results((0, 0.1), (1, 0.2), (True, 0.5)), "without index and relevance_score"),
        (Reply(body={"results": ["x", None, 3]}), "without index and relevance_score"),
        (Reply(body={"results": None}), "not answer with a list of results"),
        (Reply(body={}), "not answer with a list of results"),
        (Reply(body=[1, 2, 3]), "not answer with a list of results"),
        (
            Reply(body=b"<html>Welcome</html>", headers={"Content-Type": "text/html"}),
            "not answer with",
        ),
    ],
)
async def test_an_answer_that_is_wrong_twice_is_an_error(
    server: FakeRerank, reply: Reply, words: str
) -> None:
    """Known failure 29's kin: nothing is made up where a score is missing."""
    server.script += [reply, reply]
    with pytest.raises(ProviderAnswerInvalid, match=words):
        await scores(server)
    assert len(server.requests) == 2


async def test_an_answer_that_is_wrong_once_is_asked_for_again(server: FakeRerank) -> None:
    server.script += [results((0, 0.1))]
    assert await scores(server) == (0.0, 1.0, 0.5)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["results", "index", "relevance_score"]), inner, max_size=3
        )
    ),
    max_leaves=15,
)


@given(JSON, st.integers(1, 4))
def test_any_answer_is_a_score_for_each_or_an_error(answer: object, wanted: int) -> None:
    try:
        found = _in_order(answer, wanted, "host")
    except ProviderAnswerInvalid:
        return
    assert len(found) == wanted
    assert all(isinstance(score, float) for score in found)


# -- endpoints that fail -------------------------------------------------------------------------


async def test_no_answer_in_time_names_the_setting(server: FakeRerank) -> None:
    server.script += [Reply(hang=True)]
    with pytest.raises(ProviderTimeout, match=r"did not answer within 0\.05 s") as caught:
        await scores(server, rerank_timeout_seconds=0.05, rerank_retries=0)
    assert "search.rerank_timeout_seconds" in (caught.value.hint or "")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_not_shown(server: FakeRerank, status: int) -> None:
    server.script += [Reply(status, {"message": f"invalid api token: Bearer {KEY}"})]
    with pytest.raises(ProviderAuthError) as caught:
        await scores(server)
    assert KEY not in f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"
    assert caught.value.hint == "check search.rerank_api_key"
    assert len(server.requests) == 1


async def test_openais_key_is_not_sent(server: FakeRerank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-5ecret")
    with pytest.raises(ProviderAuthError, match="401") as caught:
        await scores(server, rerank_api_key="")
    assert "sk-openai" not in str(caught.value)
    server.key = "none"  # what goes out where no key is set
    assert await scores(server, rerank_api_key="") == (0.0, 1.0, 0.5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rerank_model": "other"}, r"\(model 'other'\)"),
        ({"rerank_url": "{}/v2/rerank"}, "no such route"),
    ],
)
async def test_a_wrong_model_or_address_names_the_settings(
    server: FakeRerank, settings: dict[str, str], words: str
) -> None:
    host = server.url.removesuffix("/v1/rerank")
    given_settings = {name: value.format(host) for name, value in settings.items()}
    with pytest.raises(ProviderMisconfigured, match=words) as caught:
        await scores(server, **given_settings)
    hint = caught.value.hint or ""
    assert "search.rerank_model" in hint
    assert "search.rerank_url, which often ends in /v1/rerank" in hint


@pytest.mark.parametrize("url", ["/rerank", "nonsense", "ftp://host/rerank", "http://[/rerank"])
async def test_an_invalid_address_names_its_setting(server: FakeRerank, url: str) -> None:
    with pytest.raises(ConfigError, match=r"invalid search\.rerank_url"):
        await scores(server, rerank_url=url)


async def test_an_endpoint_without_a_model(server: FakeRerank) -> None:
    with pytest.raises(ConfigError, match=r"set without search\.rerank_model") as caught:
        await scores(server, rerank_model="")
    assert caught.value.hint == "set search.rerank_model"


async def test_the_budget_of_the_run_counts_what_is_read(server: FakeRerank) -> None:
    budget = Budget(max_tokens=10)
    async with connected(server, budget=budget) as (reranker, _):
        await reranker.score(QUERY, DOCUMENTS)
        assert budget.tokens == 16, "66 characters, the query with each document"
        with pytest.raises(BudgetExceeded):
            await reranker.score(QUERY, DOCUMENTS)
    assert len(server.requests) == 1
