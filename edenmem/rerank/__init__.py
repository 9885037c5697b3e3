"""Models that read a query and a text together; the only place that knows a provider of them."""

#: What to do when reranking is wanted and `edenmem.engine.factory.open_reranker` gave None.
RERANKER_HINT = (
    "set search.rerank_path to a folder with an ONNX cross-encoder,"
    " or search.rerank_url and search.rerank_model to an endpoint"
)
