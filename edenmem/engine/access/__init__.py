"""Access tokens of the server.

May import: runtime.
"""
