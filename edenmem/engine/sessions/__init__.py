"""Store conversations imported from files or added by a program.

May import: edits, reports, runtime, scopes.
"""
