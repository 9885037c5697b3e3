"""Formation, consolidation and cold sessions.

May import: app, terminal.
"""
