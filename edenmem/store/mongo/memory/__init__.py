"""Reading facts, reflections, texts, history and audit in MongoDB.

May import: common, mongo.apply, mongo.core, protocol.
"""
