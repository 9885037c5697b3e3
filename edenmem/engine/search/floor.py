"""The semantic floor in force, and why it is that one."""

from __future__ import annotations

from edenmem.engine.factory import open_embedder
from edenmem.errors import ConfigError
from edenmem.search.recipes import semantic_floor
from edenmem.settings.schema import Settings


def explain_floor(settings: Settings) -> tuple[float | None, str]:
    """Report the floor of the configured embedding model, None for no floor, and the reason.

    Meant for settings that name no floor of their own.
    """
    try:
        embedder = open_embedder(settings)
    except ConfigError as error:
        return None, f"by the embedding model, which cannot be opened: {error.message}"
    if embedder is None:
        return None, "by the embedding model, and there is none"
    floor = semantic_floor(settings.search, embedder.model)
    if floor is None:
        return None, f"no floor is known for the model {embedder.model}"
    return floor, f"by the model {embedder.model}"
