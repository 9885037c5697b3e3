"""An embedding model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edenmem.embed.protocol import Embedding, Role
from edenmem.embed.vectors import embeddable, unit_vectors
from edenmem.endpoint.budget import Budget
from edenmem.endpoint.client import ANSWER_BYTES, Endpoint, estimate_tokens, field
from edenmem.endpoint.failures import SettingNames
from edenmem.errors import ConfigError, ProviderAnswerInvalid, ProviderError
from edenmem.models.formation import CallUsage, is_count

if TYPE_CHECKING:
    from edenmem.settings.schema import EmbeddingSettings

KNOWN_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
#: Endpoints also limit the tokens of one request (OpenAI: 300,000).
_REQUEST_CHARACTERS = 200_000
#: Maximum size of a vector in JSON: twice that of 4,096 numbers with all digits.
_VECTOR_BYTES = 256 * 1024


class OpenAIEmbedder:
    """An `edenmem.embed.protocol.Embedder`.

    Texts are truncated at 8,000 characters. A model with fewer dimensions than its default is
    another vector space and has another name ("…@512"). ``budget`` is shared with the language
    model of the run; None is no limit.
    """

    def __init__(
        self,
        settings: EmbeddingSettings,
        *,
        budget: Budget | None = None,
    ) -> None:
        self._settings = settings
        self._budget = budget or Budget()
        self._endpoint = Endpoint(
            names=SettingNames.of_section(
                "embedding", shorter="lower embedding.batch_size", inherited=settings.inherited
            ),
            base_url=settings.base_url,
            api_key=settings.api_key,
            timeout=settings.timeout_seconds,
            retries=settings.retries,
            max_bytes=ANSWER_BYTES + settings.batch_size * _VECTOR_BYTES,
        )
        own = KNOWN_DIMENSIONS.get(settings.model)
        self._dimensions = settings.dimensions or own
        # Only these models can shorten their vectors; for others this is the expected number.
        self._shortened = settings.model.startswith("text-embedding-3") and self._dimensions != own

    @property
    def model(self) -> str:
        """Return the model's name, with the dimensions if they are shortened."""
        name = self._settings.model
        return f"{name}@{self._dimensions}" if self._shortened else name

    @property
    def dimensions(self) -> int:
        """Return the length of a vector; for unknown models from the settings or first answer.

        Raises:
            ConfigError: the length is not known yet.
        """
        if self._dimensions is None:
            raise ConfigError(
                f"unknown number of dimensions of {self._settings.model!r}",
                hint="set embedding.dimensions",
            )
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
        """See the protocol; a text has the same vector in both roles.

        A `ProviderError` carries the ``usage`` of its calls.
        """
        if self._budget.limits_cost and self._settings.model not in self._settings.prices:
            raise ConfigError(
                "llm.max_cost limits the run, and embedding.prices has no price for"
                f" {self._settings.model!r}",
                hint=f'add "{self._settings.model}" = PRICE, in dollars per million tokens',
            )
        vectors: list[bytes] = []
        usage: list[CallUsage] = []
        try:
            for batch in self._batches(embeddable(texts)):
                try:
                    vectors += await self._embed_batch(batch, usage)
                except ProviderAnswerInvalid:
                    vectors += await self._embed_batch(batch, usage)
        except ProviderError as error:
            error.usage = tuple(usage)
            raise
        return Embedding(vectors=tuple(vectors), usage=tuple(usage))

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in texts:
            full = len(batch) >= self._settings.batch_size or size + len(text) > _REQUEST_CHARACTERS
            if batch and full:
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += len(text)
        if batch:
            yield batch

    async def _embed_batch(self, batch: list[str], usage: list[CallUsage]) -> tuple[bytes, ...]:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "input": batch,
            "encoding_format": "float",  # base64 is not supported everywhere
        }
        if self._shortened:
            body["dimensions"] = self._dimensions
        estimate = self._usage(sum(map(estimate_tokens, batch)), estimated=True)
        with self._budget.call(tokens=estimate.input_tokens, cost=estimate.cost or 0.0) as charge:
            try:
                response = await self._endpoint.post(
                    "/embeddings",
                    body,
                    model=self._settings.model,
                    model_setting="embedding.model",
                    charge=charge,
                )
            finally:
                usage += [estimate] * charge.lost
            # Some endpoints return no token count, or an invalid one; the budget must hold anyway.
            counted = field(response, "usage", "prompt_tokens")
            spent = self._usage(counted) if is_count(counted) and counted else estimate
            charge.tokens = spent.input_tokens
            charge.cost = spent.cost or 0.0
        usage.append(spent)
        rows = _in_order(response, len(batch), self._endpoint)
        vectors = unit_vectors(rows, source=self._endpoint.host, dimensions=self._dimensions)
        if self._dimensions is None:
            self._dimensions = len(vectors[0]) // 4
        return vectors

    def _usage(self, tokens: int, *, estimated: bool = False) -> CallUsage:
        price = self._settings.prices.get(self._settings.model)
        return CallUsage(
            task="embed",
            model=self._settings.model,
            input_tokens=tokens,
            cost=None if price is None else tokens * price / 1_000_000,
            estimated=estimated,
        )


def _in_order(response: object, wanted: int, endpoint: Endpoint) -> list[Any]:
    """Return the vectors in the order of the texts."""
    items = field(response, "data")
    if not isinstance(items, list):
        raise ProviderAnswerInvalid(
            f"{endpoint.host} did not answer with a list of embeddings",
            hint=endpoint.names.with_origin("check embedding.base_url; it often ends in /v1"),
        )
    indexes = [field(item, "index") for item in items]
    if len(items) != wanted or any(index not in indexes for index in range(wanted)):
        raise ProviderAnswerInvalid(
            f"{endpoint.host} returned {len(items)} vectors for {wanted} texts"
        )
    return [field(items[indexes.index(index)], "embedding") for index in range(wanted)]
