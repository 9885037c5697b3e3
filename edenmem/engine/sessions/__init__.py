"""The import of conversations.

May import: edits, reports, runtime.
"""
