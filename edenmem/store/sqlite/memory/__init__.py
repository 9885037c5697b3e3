"""Reading facts, reflections, texts, history and audit in SQLite.

May import: common, protocol, sqlite.core.
"""
