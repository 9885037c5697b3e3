"""The definitions of indexes on MongoDB, and the unique key of facts.

May import: common, mongo.core, mongo.search, mongo.walk, protocol.
"""
