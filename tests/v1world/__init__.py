"""Worlds of v1 made of named cases, an independent judge of what a migration made of them, and
hand-made damage that `migrate verify` must find.

Nothing here imports the migration: `expected` is written from v1's semantics, `target` reads the
databases with sqlite3 and pymongo, and `comparer` knows only the two.
"""
