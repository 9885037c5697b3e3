"""Setting up and looking at a store.

May import: app, commands.indexes, terminal.
"""
