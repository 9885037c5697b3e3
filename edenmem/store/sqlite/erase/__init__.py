"""Erasing the traces of a subject from SQLite.

May import: sqlite.apply, sqlite.core, sqlite.memory, sqlite.walk.
"""
