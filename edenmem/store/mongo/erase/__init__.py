"""Erase the traces of a subject from MongoDB.

May import: mongo.core, mongo.host, mongo.memory, mongo.walk, protocol.
"""
