"""The log, undo, and where a memory comes from.

May import: edits, embeddings, runtime, scopes.
"""
