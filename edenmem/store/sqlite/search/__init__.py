"""Full text, vectors and their indexes in SQLite.

May import: protocol, sqlite.core, sqlite.memory.
"""
