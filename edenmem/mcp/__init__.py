"""Memory as tools of the Model Context Protocol, over stdio or streamable HTTP.

Needs the extra ``mcp``. Agent, user and session are fixed when a server starts: tools have no
arguments for them.

May import: models, settings, errors, text, engine, server.
"""
