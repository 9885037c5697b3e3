"""Embedding models and their providers."""

from edenmem.settings.installation import install_hint


def embedder_hint() -> str:
    """Return the hint for semantic search without an embedding model."""
    return (
        f"for a local model: {install_hint('local')}; for an endpoint: set OPENAI_API_KEY,"
        " or embedding.base_url"
    )
