"""Migrate v1 memory into a v2 store.

May import: embeddings, factory, history, runtime, scopes.
"""
