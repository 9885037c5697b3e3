"""Setting up and looking at a store.

May import: app, commands.indexes, commands.people, commands.search, commands.work, terminal.
"""
