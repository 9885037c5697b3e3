"""Vectors of facts: backfill, and the switch to another model.

May import: indexes, runtime.
"""
