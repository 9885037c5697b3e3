"""The connection: collections, indexes, codec, filters, errors.

May import: common, mongo.indexes.
"""
