"""Forbid network access of tests beyond the loopback interface.

An audit hook sees the sockets of all libraries, and cannot be removed.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Any


class NetworkForbidden(RuntimeError):
    """A test tried to use the network. Not an `OSError`, which would look like an outage."""


def _is_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str) or host in ("", "localhost") or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = (
            address[0] if isinstance(address, tuple) and address else None
        )  # otherwise a UNIX socket
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
        if isinstance(host, str) and host.endswith(".invalid"):  # RFC 6761: never resolves
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    else:
        return
    if not _is_here(host):
        raise NetworkForbidden(f"a test tried to reach {host!r}")


def forbid_network() -> None:
    """Forbid network access for the rest of the process."""
    sys.addaudithook(_refuse)
