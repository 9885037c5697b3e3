"""Changes that a person makes.

May import: consolidation, embeddings, factory, formation, reports, runtime, scopes.
"""
