"""Read v1 memory from a live MongoDB, a mongodump folder or Extended JSON; never write.

Only this package knows how v1 is stored. It yields `edenmem.models.v1`.

May import: mongo.core.
"""
