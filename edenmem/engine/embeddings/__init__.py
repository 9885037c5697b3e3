"""Vectors of facts: backfill, and the switch to another model."""
