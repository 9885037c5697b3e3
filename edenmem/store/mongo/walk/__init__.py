"""Read everything stored in MongoDB, load backups, and compute statistics.

May import: mongo.core, mongo.formations, mongo.host, mongo.memory, mongo.search, protocol.
"""
