"""The HTTP server: a chat proxy that remembers, and memory as REST.

Needs the extra ``server``. Each router is a module with a ``router``, included in
`edenmem.server.app`. A request reaches what it needs through `edenmem.server.state.state_of`, and
who sent it through the dependency `edenmem.server.access.caller`.

May import: models, settings, errors, text, engine.
"""
