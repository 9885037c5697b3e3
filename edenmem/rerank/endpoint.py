"""A reranker behind an endpoint with the API of Cohere's and Jina's ``/rerank``.

The API is ``POST …/rerank {model, query, documents, top_n}`` → ``{results: [{index,
relevance_score}, …]}``; vLLM, llama.cpp, Infinity and others support it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edenmem.endpoint.budget import Budget
from edenmem.endpoint.client import Endpoint, estimate_tokens
from edenmem.endpoint.failures import SettingNames
from edenmem.errors import ConfigError, ProviderAnswerInvalid
from edenmem.rerank.protocol import readable, relevances

if TYPE_CHECKING:
    from edenmem.settings.schema import SearchSettings

_PATH = "/rerank"
#: No score is as large; JSON has integers of any length.
_MOST = 1e300
#: Documents per request: billed as one search, and accepted by all endpoints.
_BATCH = 100
_NAMES = SettingNames(
    base_url="search.rerank_url",
    api_key="search.rerank_api_key",
    timeout="search.rerank_timeout_seconds",
    ending="/v1/rerank",
    shorter="lower search.rerank_depth",
)


class EndpointReranker:
    """An `edenmem.rerank.protocol.Reranker`. Settings are checked on first use.

    ``search.rerank_url`` may end in ``/rerank`` or not. The tokens of the calls count against
    ``budget``; their cost is unknown.
    """

    def __init__(
        self,
        settings: SearchSettings,
        *,
        budget: Budget | None = None,
    ) -> None:
        self._settings = settings
        self._budget = budget or Budget()

    @property
    def model(self) -> str:
        """Return the name of the model."""
        return self._settings.rerank_model

    async def score(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """See the protocol. Documents are truncated at 8,000 characters."""
        if not self.model:
            raise ConfigError(
                "search.rerank_url is set without search.rerank_model",
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
        """Close the connections."""
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
        )

    async def _score_batch(self, query: str, documents: list[str]) -> tuple[float, ...]:
        body = {
            "model": self.model,
            "query": query,
            "documents": documents,
            "top_n": len(documents),
        }
        # The query is read with each document.
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
    """Return the scores in the order of the documents.

    Raises:
        ProviderAnswerInvalid: the answer is not one number for each document.
    """
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise ProviderAnswerInvalid(
            f"{host} did not answer with a list of results",
            hint="check search.rerank_url; it often ends in /v1/rerank",
        )
    scores: dict[int, float] = {}
    for result in results:
        index, score = _entry(result, host)
        if not 0 <= index < wanted:
            raise ProviderAnswerInvalid(
                f"{host} scored an unknown document: {index} (0 to {wanted - 1} were sent)"
            )
        if index in scores:
            raise ProviderAnswerInvalid(f"{host} scored a document twice: {index}")
        scores[index] = score
    if len(scores) != wanted:
        raise ProviderAnswerInvalid(f"{host} returned {len(scores)} scores for {wanted} documents")
    return [scores[index] for index in range(wanted)]


def _entry(result: Any, host: str) -> tuple[int, float]:
    if isinstance(result, dict):
        index: Any = result.get("index")
        score: Any = result.get("relevance_score")
        if type(index) is int and type(score) in (int, float) and -_MOST < score < _MOST:
            return index, float(score)
    raise ProviderAnswerInvalid(f"{host} returned a result without index and relevance_score")
