"""Walks over everything stored in MongoDB: backups, integrity, statistics, traces."""
