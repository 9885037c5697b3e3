"""Consolidation: from pending reflections to a scope's text, and to the scope above.

May import: formation, reports, runtime, scopes.
"""
