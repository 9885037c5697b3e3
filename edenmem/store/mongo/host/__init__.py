"""The platform's agents, users, sessions and messages; access tokens.

May import: mongo.core, mongo.memory, protocol.
"""
