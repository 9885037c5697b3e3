"""Forgetting a user, a session, a group or an agent.

May import: access, consolidation, context, edits, runtime, scopes, search.
"""
