"""Erasing the traces of a subject from SQLite.

May import: sqlite.core, sqlite.formations, sqlite.memory, sqlite.walk.
"""
