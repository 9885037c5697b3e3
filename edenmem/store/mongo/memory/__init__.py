"""Read facts, reflections, texts, history and audit entries in MongoDB.

May import: common, mongo.core, protocol.
"""
