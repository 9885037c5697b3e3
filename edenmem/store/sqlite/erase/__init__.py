"""Erasing the traces of a subject from SQLite.

May import: sqlite.core, sqlite.memory, sqlite.walk.
"""
