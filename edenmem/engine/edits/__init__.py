"""Edits of memory by operators.

May import: consolidation, embeddings, factory, formation, reports, runtime, scopes.
"""
