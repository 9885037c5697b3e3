"""A reranker behind an endpoint of the form of Cohere's and Jina's ``/rerank``.

The form is ``POST …/rerank {model, query, documents, top_n}`` → ``{results: [{index,
relevance_score}, …]}``; vLLM, llama.cpp, Infinity and others have it too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edenmem.endpoint.budget import Budget, estimate_tokens
from edenmem.endpoint.client import Endpoint
from edenmem.endpoint.failures import SettingNames
from edenmem.errors import ConfigError, ProviderAnswerInvalid
from edenmem.rerank.scores import readable, relevances

if TYPE_CHECKING:
    from edenmem.settings.schema import SearchSettings

_PATH = "/rerank"
#: What endpoints bill as one search, and what all of them take.
_BATCH = 100
_NAMES = SettingNames(
    base_url="search.rerank_url",
    api_key="search.rerank_api_key",
    timeout="search.rerank_timeout_seconds",
    ending="/v1/rerank",
    shorter="lower search.rerank_depth",
)


class EndpointReranker:
    """An `edenmem.rerank.protocol.Reranker`. Nothing is looked at before the first use.

    ``search.rerank_url`` may end in ``/rerank`` or not. The calls count with their tokens against
    ``budget``; what they cost is not known.
    """

    def __init__(
        self,
        settings: SearchSettings,
        *,
        budget: Budget | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._settings = settings
        self._budget = budget or Budget()
        self._sleep = sleep
        self._uniform = uniform

    @property
    def model(self) -> str:
        """The model's name."""
        return self._settings.rerank_model

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """See the protocol. Documents beyond 8,000 characters count by their beginning."""
        if not self.model:
            raise ConfigError(
                "search.rerank_url names an endpoint, and no model is named",
                hint="set search.rerank_model",
            )
        asked = readable(query)
        texts = [readable(document) for document in documents]
        scores: list[float] = []
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            try:
                scores += await self._score_batch(asked, batch)
            except ProviderAnswerInvalid:
                scores += await self._score_batch(asked, batch)
        return tuple(scores)

    async def close(self) -> None:
        """Let go of connections."""
        endpoint = self.__dict__.get("_endpoint")
        if endpoint is not None:
            await endpoint.close()

    @cached_property
    def _endpoint(self) -> Endpoint:
        url = self._settings.rerank_url
        return Endpoint(
            names=_NAMES,
            base_url=url.rstrip("/").removesuffix(_PATH) or url,
            api_key=self._settings.rerank_api_key,
            timeout=self._settings.rerank_timeout_seconds,
            retries=self._settings.rerank_retries,
            sleep=self._sleep,
            uniform=self._uniform,
        )

    async def _score_batch(self, query: str, documents: list[str]) -> tuple[float, ...]:
        body = {
            "model": self.model,
            "query": query,
            "documents": documents,
            "top_n": len(documents),
        }
        # The query is read again with each document.
        asked = estimate_tokens(query)
        expected = sum(asked + estimate_tokens(document) for document in documents)
        with self._budget.call(tokens=expected, cost=0.0) as charge:
            answer = await self._endpoint.post(
                _PATH,
                body,
                model=self.model,
                model_setting="search.rerank_model",
                charge=charge,
            )
            charge.tokens = expected
        host = self._endpoint.host
        return relevances(
            _in_order(answer, len(documents), host),
            logits=self._settings.rerank_scores == "logits",
            source=host,
        )


def _in_order(answer: object, wanted: int, host: str) -> list[float]:
    """The score of each document in the order in which they were sent; nothing is taken on trust.

    Raises:
        ProviderAnswerInvalid: it is not one number for each document.
    """
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise ProviderAnswerInvalid(
            f"{host} answered with something that is no list of results",
            hint="check search.rerank_url; it often ends in /v1/rerank",
        )
    scores: dict[int, float] = {}
    for result in results:
        index, score = _entry(result, host)
        if not 0 <= index < wanted:
            raise ProviderAnswerInvalid(
                f"{host} gave a score to document {index}, and there are 0 to {wanted - 1}"
            )
        if index in scores:
            raise ProviderAnswerInvalid(f"{host} gave two scores to document {index}")
        scores[index] = score
    if len(scores) != wanted:
        raise ProviderAnswerInvalid(f"{host} gave {len(scores)} scores for {wanted} documents")
    return [scores[index] for index in range(wanted)]


def _entry(result: Any, host: str) -> tuple[int, float]:
    if isinstance(result, dict):
        index, score = result.get("index"), result.get("relevance_score")
        if type(index) is int and isinstance(score, int | float) and not isinstance(score, bool):
            return index, _float(score)
    raise ProviderAnswerInvalid(f"{host} gave a result without an index and a relevance_score")


def _float(score: float) -> float:
    try:
        return float(score)
    except OverflowError:  # JSON has integers of any length
        return float("inf")
