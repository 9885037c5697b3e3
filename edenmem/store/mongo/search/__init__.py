"""Find search candidates with Atlas Search or an exact scan, and keep their vectors.

May import: common, mongo.core, protocol.
"""
