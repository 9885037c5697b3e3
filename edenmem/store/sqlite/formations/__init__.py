"""Claims, formations, quiet sessions and usage in SQLite.

May import: common, protocol, sqlite.apply, sqlite.core, sqlite.host.
"""
