"""Applying change sets in SQLite.

May import: sqlite.core, sqlite.host, sqlite.memory, protocol.
"""
