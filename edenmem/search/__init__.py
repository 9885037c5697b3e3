"""Fusion, scoring, reranking and diversity: pure functions over the candidates of a store."""
