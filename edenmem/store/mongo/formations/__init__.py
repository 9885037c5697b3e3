"""Store claims, formations, quiet sessions and usage in MongoDB.

May import: common, mongo.core, mongo.host, mongo.search, protocol.
"""
