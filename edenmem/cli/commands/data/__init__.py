"""Backups, migration and forgetting.

May import: app, terminal.
"""
