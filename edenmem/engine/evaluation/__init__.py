"""Evaluation of search on labeled queries.

May import: runtime, scopes, search, sessions.
"""
