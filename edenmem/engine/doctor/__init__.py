"""Check the health of a store, and repair damage.

May import: edits, embeddings, erasure, exchange, factory, formation, runtime, scopes.
"""
