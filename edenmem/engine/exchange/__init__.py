"""Export and import memory: complete JSON Lines, and Markdown to read and edit.

May import: consolidation, edits, factory, reports, runtime, scopes, seals, sessions.
"""
