"""The stage on which a migration lays out the documents of v1.

May import: v1.
"""
