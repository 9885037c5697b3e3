"""Walks over everything stored in SQLite: backups, integrity, statistics, traces.

May import: protocol, sqlite.core, sqlite.formations, sqlite.host, sqlite.memory.
"""
