"""The HTTP server: a chat proxy with memory, and REST endpoints for memory.

Needs the extra ``server``. `edenmem.server.app` includes the ``router`` of each module. Routes get
shared state from `edenmem.server.state.state_of` and the caller from the dependency
`edenmem.server.access.caller`.

May import: models, settings, errors, text, engine.
"""
