"""The settings of search that follow from the embedding model, and their source."""

from __future__ import annotations

from edenmem.engine.embeddings.choice import settle
from edenmem.engine.factory import open_embedder
from edenmem.errors import ConfigError, ProviderError, StoreError
from edenmem.models.embeddings import SCALES
from edenmem.search.recipes import effective
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


def explain_scale(settings: Settings, store: Store) -> tuple[dict[str, float | None], str]:
    """Return the effective values of these settings by name (None: no minimum), and the reason."""
    try:
        embedder = open_embedder(settle(settings, store))
    except (ConfigError, ProviderError, StoreError) as error:
        why = f"by the embedding model, which cannot be opened: {error.message}"
        return effective(settings.search, ""), why
    if embedder is None:
        return effective(settings.search, ""), "by the embedding model, but none is configured"
    values = effective(settings.search, embedder.model)
    if embedder.model not in SCALES:
        return values, f"no scale is known for the model {embedder.model}"
    return values, f"by the model {embedder.model}"
