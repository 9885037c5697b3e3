"""Agents, users, sessions and messages in SQLite.

May import: protocol, sqlite.core.
"""
