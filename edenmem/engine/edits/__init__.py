"""Changes that a person makes.

May import: consolidation, embeddings, formation, reports, runtime, scopes.
"""
