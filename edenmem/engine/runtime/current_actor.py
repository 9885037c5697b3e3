"""The default actor."""

from __future__ import annotations

from edenmem.models.changes import Actor


def current_actor() -> Actor:
    """Return the user and host of this process, for history and audit."""
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container user without a name
        name = "unknown"
    return Actor(name=name, host=socket.gethostname(), command="MemoryService")
