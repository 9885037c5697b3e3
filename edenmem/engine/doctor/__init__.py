"""The health of a store: what is checked, what was found, and what can be repaired.

May import: embeddings, exchange, factory, formation, runtime, scopes.
"""
