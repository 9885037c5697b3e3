"""Compute statistics of memory, and render them as a page.

May import: scopes.
"""
