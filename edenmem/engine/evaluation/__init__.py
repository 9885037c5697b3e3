"""Evaluation of search on labeled queries, and tuning of its settings.

May import: runtime, scopes, search, sessions.
"""
