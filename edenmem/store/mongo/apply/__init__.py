"""Applying change sets in MongoDB.

May import: mongo.core, mongo.erase, mongo.host, mongo.indexes, mongo.memory, mongo.search,
protocol.
"""
