"""The full-screen browser of memory, for a person at a terminal.

Needs the extra ``ui``. `edenmem.browse.app.Browser` is the application. Stores and models are asked
in threads and workers, never by the event loop that draws the screen, and every change goes through
`edenmem.engine.service.MemoryService`, as those of the command line do.

May import: models, settings, errors, text, engine.
"""
