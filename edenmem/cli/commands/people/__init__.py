"""Agents, users, sessions and their scopes."""
