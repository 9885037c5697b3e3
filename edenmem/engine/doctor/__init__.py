"""Check the health of a store, and repair damage.

May import: embeddings, exchange, factory, formation, runtime, scopes.
"""
