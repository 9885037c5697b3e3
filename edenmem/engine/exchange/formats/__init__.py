"""The files of other systems, one module each: what they look like, and how they are read.

Each module has ``read(source, left_out)``, which yields the number of each item and its line for
the import: facts with ``content``, and chats with ``messages``. Agents and users that the file does
not name are missing; the bytes of an invalid item stay as they are. ``left_out`` counts by name
what the file has and the import does not.

May import: exchange, sessions.
"""
