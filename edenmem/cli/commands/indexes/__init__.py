"""Indexes and vectors.

May import: app, terminal.
"""
