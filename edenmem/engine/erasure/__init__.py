"""Forgetting a user, session, group or agent."""
