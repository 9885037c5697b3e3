"""Who acts, where a program did not say it."""

from __future__ import annotations

from edenmem.models.changes import Actor


def current_actor() -> Actor:
    """The user and host of this process, for history and audit."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        name = "unknown"
    return Actor(name=name, host=socket.gethostname(), command="MemoryService")
