"""Walks over everything stored in MongoDB: backups, integrity, statistics, traces.

May import: common, mongo.core, mongo.formations, mongo.host, mongo.memory, mongo.search,
protocol.
"""
