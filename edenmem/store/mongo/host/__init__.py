"""The platform's agents, users, sessions and messages.

May import: mongo.apply, mongo.core, mongo.formations, protocol.
"""
