"""Chats that pass through the proxy: their sessions, their messages and the memory they get.

May import: context, reports, runtime, scopes, search.
"""
