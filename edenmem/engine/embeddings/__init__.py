"""Embed facts: backfill missing vectors, and switch to another model.

May import: factory, indexes, runtime.
"""
