"""Walks over everything stored in SQLite: backups, integrity, statistics, traces.

May import: common, protocol, sqlite.core, sqlite.formations, sqlite.host, sqlite.memory.
"""
