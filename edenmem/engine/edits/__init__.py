"""Edits of memory by operators.

May import: consolidation, embeddings, formation, reports, runtime, scopes.
"""
