"""The choice between an endpoint and a local model for vectors.

``embedding.provider = auto`` leaves the choice open if only ``OPENAI_API_KEY`` or
``OPENAI_BASE_URL`` names the endpoint, and a local model is installed, too: both variables are
often set for the language model, or for another program. Then the vectors of the store decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edenmem.engine.factory import (
    EmbedderKind,
    embedder_kind,
    find_local_model,
    names_local_model,
    open_embedder,
)
from edenmem.errors import ConfigError, ProviderError, StoreError
from edenmem.models.embedding_scale import LOCAL_MODELS

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.endpoint.budget import Budget
    from edenmem.settings.schema import EmbeddingSettings, Settings
    from edenmem.store.protocol.store import Store


class _Choice(NamedTuple):
    kind: EmbedderKind
    reason: str


def is_open(embedding: EmbeddingSettings) -> bool:
    """Return whether the vectors of the store decide between the endpoint and the local model."""
    given = {name for name in ("api_key", "base_url") if getattr(embedding, name)}
    return (
        embedding.provider == "auto"
        and embedder_kind(embedding) == "openai"
        and given <= embedding.inherited
        and embedding.model == type(embedding)().model
        and find_local_model(embedding) is not None
    )


def settle(settings: Settings, store: Store) -> Settings:
    """Return the settings with the provider for this store, if they leave it open. Blocks.

    Reads at most the switch and one vector's model.

    Raises:
        StoreError: the database cannot be used.
    """
    if not is_open(settings.embedding):
        return settings
    kind = _choose(settings.embedding, store).kind
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
    from edenmem.engine.embeddings.deferred import DeferredEmbedder

    def open_settled() -> Embedder:
        opened = open_embedder(settle(settings, store), budget=budget)
        assert opened is not None  # both models are available if the choice is open
        return opened

    return DeferredEmbedder(open_settled)


def explain(settings: Settings, store: Store) -> str:
    """Describe what ``auto`` selects for this store, and why. Blocks."""
    embedding = settings.embedding
    try:
        if is_open(embedding):
            kind, reason = _choose(embedding, store)
        elif (kind := embedder_kind(embedding)) == "openai":
            reason = "a key or address is set"
        else:
            is_named = names_local_model(embedding)
            reason = "the settings name it" if is_named else "no key or address is set"
        local = find_local_model(embedding) if kind == "local" else None
    except (ConfigError, ProviderError, StoreError) as error:
        return f"the model is unknown: {error.message}"
    if kind == "openai":
        return f"uses {embedding.model} of the endpoint: {reason}"
    if local is None:
        return f"uses no model: {reason}, and no local model is installed"
    return f"uses the local model {local.name}: {reason}"


def _choose(embedding: EmbeddingSettings, store: Store) -> _Choice:
    stored = _model_in_use(store)
    if not stored:
        return _Choice("openai", "the store has no vectors")
    reason = f"the store has vectors of {stored}"
    # With the wrong local model, a search fails without sending the query to the endpoint.
    is_local = stored in LOCAL_MODELS and not store.switches.platform_model(stored)
    return _Choice("local" if is_local else "openai", reason)


def _model_in_use(store: Store) -> str:
    """Return the model that searches of the store use, or "" if it has no vectors."""
    stored = store.vectors.first_vector_model()
    if not stored:
        return ""
    switch = store.switches.vector_switch()
    return switch.in_force if switch is not None else stored
