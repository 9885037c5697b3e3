"""The platform's agents, users, sessions and messages.

May import: mongo.core, mongo.memory, protocol.
"""
