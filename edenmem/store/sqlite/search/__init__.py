"""Full text, vectors and their indexes in SQLite.

May import: common, protocol, sqlite.core, sqlite.memory.
"""
