"""The platform's agents, users, sessions and messages."""
