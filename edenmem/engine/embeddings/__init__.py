"""Embed facts: backfill missing vectors, and switch to another model.

May import: indexes, runtime.
"""
