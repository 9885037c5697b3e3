"""Rerankers, models that read a query and a text together, and their providers."""

#: Hint for reranking without a reranker.
RERANKER_HINT = (
    "set search.rerank_path to a folder with an ONNX cross-encoder,"
    " or search.rerank_url and search.rerank_model to an endpoint"
)
