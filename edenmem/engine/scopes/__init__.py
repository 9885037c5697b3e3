"""Scopes: overview, visibility, labels, and resolution of references.

May import: reports.
"""
