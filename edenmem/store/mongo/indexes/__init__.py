"""Manage the database as a whole, and its indexes.

May import: common, mongo.core, mongo.search, protocol.
"""
