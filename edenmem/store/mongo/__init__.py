"""Store memory in MongoDB, in the platform's documents.

May import: mongo.apply, mongo.core, mongo.formations, mongo.host, mongo.indexes,
mongo.memory, mongo.search, mongo.walk, protocol.
"""

from edenmem.store.mongo.store import MongoStore

__all__ = ["MongoStore"]
