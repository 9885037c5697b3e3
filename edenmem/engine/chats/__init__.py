"""Chats of the proxy: sessions, messages and memory.

May import: context, reports, runtime, scopes, search, sessions.
"""
