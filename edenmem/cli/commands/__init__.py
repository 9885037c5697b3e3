"""The commands, one module per group.

May import: app, terminal.
"""
