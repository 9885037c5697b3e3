"""Embedding models; the only place that knows a provider of them."""
