"""Fusion, scoring, rerank and diversity: pure functions over what a store found."""
