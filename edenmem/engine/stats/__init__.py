"""Statistics of memory, as numbers and as a page.

May import: reports, scopes.
"""
