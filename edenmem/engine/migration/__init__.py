"""The migration of v1 memory into a store of v2.

May import: consolidation, embeddings, factory, history, runtime, scopes.
"""
