"""Agents, users, sessions and messages in SQLite."""
