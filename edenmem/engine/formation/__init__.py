"""Formation: from a range of messages to facts and reflections.

May import: embeddings, reports, runtime, scopes.
"""
