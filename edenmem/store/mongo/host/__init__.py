"""Read and write the platform's agents, users, sessions and messages, and access tokens.

May import: mongo.core, mongo.memory, protocol.
"""
