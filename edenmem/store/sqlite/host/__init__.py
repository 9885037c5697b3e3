"""Agents, users, sessions, messages and access tokens in SQLite.

May import: protocol, sqlite.core, sqlite.memory.
"""
