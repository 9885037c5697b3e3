"""Finding facts, and the context of a prompt.

May import: app, terminal.
"""
