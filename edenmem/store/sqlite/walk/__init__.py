"""Walks over everything stored in SQLite: backups, integrity, statistics, traces.

May import: common, sqlite.core, sqlite.formations, sqlite.host, sqlite.memory.
"""
