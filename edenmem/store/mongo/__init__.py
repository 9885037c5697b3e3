"""Memory in MongoDB, in the documents of the platform."""

from edenmem.store.mongo.store import MongoStore

__all__ = ["MongoStore"]
