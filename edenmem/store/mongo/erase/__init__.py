"""Erase the traces of a subject from MongoDB.

May import: common, mongo.core, mongo.formations, mongo.host, mongo.memory, mongo.walk, protocol.
"""
