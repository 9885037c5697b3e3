"""Facts, reflections, texts, and their log.

May import: app, commands.search, terminal.
"""
