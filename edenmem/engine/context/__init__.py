"""Memory contexts for prompts, and recall for a message.

May import: formation, reports, runtime, scopes, search.
"""
