"""Backups, migration and forgetting.

May import: app, commands.memory, terminal.
"""
