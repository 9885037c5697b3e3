"""The log, undo, and the origin of memories.

May import: edits, embeddings, runtime, scopes.
"""
