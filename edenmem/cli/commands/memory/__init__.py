"""Facts, reflections, texts, and their log.

May import: app, terminal.
"""
