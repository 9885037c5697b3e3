"""Forget users, sessions, groups and agents.

May import: access, consolidation, context, edits, runtime, scopes, search.
"""
