"""Agents, users, sessions and their scopes.

May import: app, terminal.
"""
