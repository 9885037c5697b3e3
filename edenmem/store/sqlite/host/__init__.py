"""Agents, users, sessions and messages in SQLite.

May import: common, protocol, sqlite.core.
"""
