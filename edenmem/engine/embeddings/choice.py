"""The choice between an endpoint and a local model for vectors.

``embedding.provider = auto`` leaves the choice open if the default local model is installed, and
the settings of embeddings name neither a model nor an endpoint: ``OPENAI_API_KEY`` and
``OPENAI_BASE_URL`` are often set for the language model, or for another program. Then the store
decides: in the platform's database, only its model fits; stored vectors keep their model; and
an empty store takes the local model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from edenmem.embed.protocol import Embedder, Embedding, Role
from edenmem.engine.factory import (
    EmbedderKind,
    embedder_kind,
    find_local_model,
    has_endpoint,
    names_endpoint,
    names_local_model,
    open_embedder,
)
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import ConfigError, ProviderError, StoreError
from edenmem.models.embeddings import LOCAL_MODELS

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.endpoint.budget import Budget
    from edenmem.settings.schema import EmbeddingSettings, Settings
    from edenmem.store.protocol.store import Store


#: A kind of embedding model, and why it is chosen.
_Choice = tuple[EmbedderKind, str]


def is_open(embedding: EmbeddingSettings) -> bool:
    """Return whether the store decides between the endpoint and the local model."""
    return (
        embedding.provider == "auto"
        and not names_local_model(embedding)
        and not names_endpoint(embedding)
        and find_local_model(embedding) is not None
    )


def settle(settings: Settings, store: Store) -> Settings:
    """Return the settings with the provider for this store, if they leave it open. Blocks.

    Reads at most the switch, one vector's model, and whether the platform uses the database.

    Raises:
        StoreError: the database cannot be used.
    """
    if not is_open(settings.embedding):
        return settings
    kind, _ = _choose(settings.embedding, store)
    embedding = msgspec.structs.replace(settings.embedding, provider=kind)
    return msgspec.structs.replace(settings, embedding=embedding)


def open_embedder_for(
    settings: Settings, store: Store, *, budget: Budget | None = None
) -> Embedder | None:
    """Return the embedding model for this store, without connecting to it yet.

    Raises:
        ConfigError: the folder of the local model does not exist.
        ProviderMisconfigured: the local model of the settings is not installed.
    """
    if not is_open(settings.embedding):
        return open_embedder(settings, budget=budget)

    def open_settled() -> Embedder:
        opened = open_embedder(settle(settings, store), budget=budget)
        # In the platform's database without a key, edits store no vector of the local model.
        opened = opened or open_embedder(settings, budget=budget)
        assert opened is not None  # the local model is installed if the choice is open
        return opened

    return DeferredEmbedder(open_settled)


def explain(settings: Settings, store: Store) -> str:
    """Describe what ``auto`` selects for this store, and why. Blocks."""
    embedding = settings.embedding
    try:
        kind, reason = _decide(embedding, store)
        local = find_local_model(embedding) if kind == "local" else None
    except (ConfigError, ProviderError, StoreError) as error:
        return f"the model is unknown: {error.message}"
    if kind == "openai":
        return f"uses {embedding.model} of the endpoint: {reason}"
    if local is None:
        return f"uses no model: {reason}"
    return f"uses the local model {local.name}: {reason}"


def describe_destination(settings: Settings, store: Store) -> str:
    """Describe where the texts of facts and queries go to be embedded. Blocks."""
    embedding = settings.embedding
    try:
        kind, reason = _decide(embedding, store)
    except (ConfigError, ProviderError, StoreError) as error:
        return f"unknown: {error.message}"
    if kind == "openai":
        from edenmem.endpoint.client import OPENAI_URL

        url = urlsplit(embedding.base_url or OPENAI_URL)  # without a user or password
        return f"sent to {url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    return f"none: {reason}" if kind == "none" else "on this machine"


def first_destination(settings: Settings, store: Store) -> str:
    """Describe where texts go if the store has no vectors yet, and they go anywhere, else "".

    Blocks.

    Raises:
        StoreError: the database cannot be used.
    """
    if settings.embedding.provider == "none" or store.vectors.first_vector_model():
        return ""
    destination = describe_destination(settings, store)
    return "" if destination.startswith("none") else destination


def _decide(embedding: EmbeddingSettings, store: Store) -> _Choice:
    """Choose for any settings.

    Raises:
        ConfigError: the folder of the local model does not exist.
        ProviderMisconfigured: the local model of the settings is not installed.
        StoreError: the database cannot be used.
    """
    if is_open(embedding):
        return _choose(embedding, store)
    kind = embedder_kind(embedding)
    reason = f"embedding.provider is {embedding.provider}"
    if embedding.provider == "auto":
        is_named = names_local_model(embedding) or names_endpoint(embedding)
        key = "a key or address" if kind == "openai" else "no key or address"
        reason = "the settings name it" if is_named else f"{key} is set"
    if kind == "local" and find_local_model(embedding) is None:
        return ("none", f"{reason}, and no local model is installed")
    return (kind, reason)


def _choose(embedding: EmbeddingSettings, store: Store) -> _Choice:
    """Choose by the store, with the default local model installed."""
    local = find_local_model(embedding)
    platform = store.switches.platform_model(local.name) if local is not None else ""
    if platform:
        reason = f"the platform searches vectors of {platform}"
        if has_endpoint(embedding):
            return ("openai", reason)
        return ("none", f"{reason}, and no key is set: set OPENAI_API_KEY")
    if not has_endpoint(embedding):
        return ("local", "no key or address is set")
    stored = store.vectors.first_vector_model()
    if not stored:
        return ("local", "the store has no vectors")
    switch = store.switches.vector_switch()
    stored = switch.in_force if switch is not None else stored
    # With the wrong local model, a search fails without sending the query to the endpoint.
    kind: EmbedderKind = "local" if stored in LOCAL_MODELS else "openai"
    return (kind, f"the store has vectors of {stored}")


class DeferredEmbedder:
    """An `edenmem.embed.protocol.Embedder` that ``opener`` opens on first use.

    ``opener`` may block, and is called again if it failed.
    """

    def __init__(self, opener: Callable[[], Embedder]) -> None:
        self._opener = opener
        self._opened: Embedder | None = None
        self._lock = Lock()

    @property
    def model(self) -> str:
        """See the protocol."""
        return self._embedder().model

    @property
    def dimensions(self) -> int:
        """See the protocol."""
        return self._embedder().dimensions

    async def embed(self, texts: Sequence[str], *, role: Role) -> Embedding:
        """See the protocol."""
        embedder = await in_thread(self._embedder)
        return await embedder.embed(texts, role=role)

    async def close(self) -> None:
        """Close the model if it was opened."""
        if self._opened is not None:
            await self._opened.close()

    def _embedder(self) -> Embedder:
        with self._lock:
            if self._opened is None:
                self._opened = self._opener()
            return self._opened
