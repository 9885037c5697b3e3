"""Backups, migration and forgetting."""
