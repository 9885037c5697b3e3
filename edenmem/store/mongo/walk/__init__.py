"""Everything stored in MongoDB: the one walk over it, loading a backup, and statistics.

May import: mongo.core, mongo.formations, mongo.host, mongo.memory, mongo.search, protocol.
"""
