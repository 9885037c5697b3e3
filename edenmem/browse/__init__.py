"""The full-screen browser of memory.

Needs the extra ``ui``. `edenmem.browse.app.Browser` is the application. Stores and models are
called in threads and workers, never in the event loop that draws the screen. All changes go through
`edenmem.engine.service.MemoryService`, as in the command line.

May import: models, settings, errors, text, engine.
"""
