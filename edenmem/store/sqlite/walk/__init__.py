"""Walks over everything stored in SQLite: backups, integrity, statistics, traces."""
