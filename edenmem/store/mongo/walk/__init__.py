"""Walks over everything stored in MongoDB: backups, integrity, statistics, traces.

May import: common, mongo.core, mongo.erase, mongo.formations, mongo.host, mongo.indexes,
mongo.memory, mongo.search, protocol.
"""
