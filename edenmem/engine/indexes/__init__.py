"""Indexes: create, compare, wait for them, and try them on a cluster.

May import: runtime.
"""
