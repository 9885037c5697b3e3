"""Formation: turn a range of messages into facts and reflections.

May import: embeddings, reports, runtime, scopes.
"""
