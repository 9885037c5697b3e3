"""Indexes: create, compare, wait, and try on a cluster."""
