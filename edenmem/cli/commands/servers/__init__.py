"""Servers for agents and clients: HTTP, tokens and MCP.

May import: app, terminal.
"""
