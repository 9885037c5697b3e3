"""Evaluation of search on labelled queries, and tuning of its settings.

May import: runtime, scopes, search, sessions.
"""
