"""Forget users, sessions, groups and agents.

May import: consolidation, context, edits, exchange, formation, runtime, scopes, seals, tokens.
"""
