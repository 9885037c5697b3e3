"""Apply change sets in MongoDB.

May import: mongo.core, mongo.host, mongo.memory, mongo.search, protocol.
"""
