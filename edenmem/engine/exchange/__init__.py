"""Memory as files: complete JSON Lines, and Markdown that people read and edit.

May import: consolidation, edits, reports, runtime, scopes, sessions.
"""
