"""Conversations from elsewhere: imported from files, or handed over by a program.

May import: edits, reports, runtime, scopes.
"""
