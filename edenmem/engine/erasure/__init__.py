"""Forget users, sessions, groups and agents.

May import: access, consolidation, context, edits, exchange, formation, runtime, scopes,
seals, search.
"""
