"""Read everything stored in MongoDB, load backups, erase traces, and compute statistics.

May import: common, mongo.core, mongo.formations, mongo.host, mongo.memory, mongo.search, protocol.
"""
