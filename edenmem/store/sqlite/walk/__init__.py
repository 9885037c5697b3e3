"""Walks over everything stored in SQLite: backups, integrity, statistics, erasure.

May import: common, protocol, sqlite.core, sqlite.formations, sqlite.host, sqlite.memory.
"""
