"""Applying change sets in SQLite."""
