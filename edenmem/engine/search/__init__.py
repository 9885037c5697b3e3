"""Search: from a query to ranked facts, with the reasons.

May import: embeddings, factory, reports, runtime.
"""
