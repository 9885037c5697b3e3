"""Tokens that open the server to others.

May import: runtime.
"""
