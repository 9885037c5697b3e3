"""The semantic floor in force, and its source."""

from __future__ import annotations

from edenmem.engine.embeddings.choice import settle
from edenmem.engine.factory import open_embedder
from edenmem.errors import ConfigError, ProviderError, StoreError
from edenmem.search.recipes import semantic_floor
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


def explain_floor(settings: Settings, store: Store) -> tuple[float | None, str]:
    """Return the floor of the store's embedding model (None: no floor), and the reason.

    For settings without a floor.
    """
    try:
        embedder = open_embedder(settle(settings, store))
    except (ConfigError, ProviderError, StoreError) as error:
        return None, f"by the embedding model, which cannot be opened: {error.message}"
    if embedder is None:
        return None, "by the embedding model, but none is configured"
    floor = semantic_floor(settings.search, embedder.model)
    if floor is None:
        return None, f"no floor is known for the model {embedder.model}"
    return floor, f"by the model {embedder.model}"
