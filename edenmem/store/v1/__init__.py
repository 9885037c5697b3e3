"""Sources of v1: a live MongoDB, a folder of mongodump, Extended JSON. All are read, never written.

The only place that knows how v1 is stored. What comes out is `edenmem.models.v1_documents`.

May import: mongo.core.
"""
