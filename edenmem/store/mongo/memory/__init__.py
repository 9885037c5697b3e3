"""Reading facts, reflections, texts, history and audit in MongoDB.

May import: common, mongo.core, protocol.
"""
