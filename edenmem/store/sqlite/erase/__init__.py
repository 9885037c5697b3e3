"""Erasing the traces of a subject from SQLite.

May import: common, sqlite.apply, sqlite.core, sqlite.formations, sqlite.memory, sqlite.walk.
"""
