"""How well search does on labelled queries, and which settings do best.

May import: runtime, scopes, search, sessions.
"""
