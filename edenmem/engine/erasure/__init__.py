"""Forget users, sessions, groups and agents.

May import: access, consolidation, context, edits, formation, runtime, scopes, seals,
search.
"""
