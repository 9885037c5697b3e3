"""The doors for agents: HTTP, tokens and MCP.

May import: app, terminal.
"""
