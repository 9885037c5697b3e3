"""The memory that goes into a prompt, and recall for one message.

May import: formation, reports, runtime, scopes, search.
"""
