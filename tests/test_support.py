"""The fakes of the tests behave as documented."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support.network import NetworkForbidden

# -- network and environment ---------------------------------------------------------------------


def test_the_network_is_out_of_reach() -> None:
    with socket.socket() as out, pytest.raises(NetworkForbidden):
        out.connect(("192.0.2.1", 80))
    with pytest.raises(NetworkForbidden):
        socket.getaddrinfo("example.org", 443)
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("database.invalid", 27017)


def test_the_loopback_interface_is_in_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()[:2]).close()


def test_settings_of_the_user_are_ignored(tmp_path: Path) -> None:
    assert not [name for name in os.environ if name.startswith(("EDENMEM_", "OPENAI_"))]
    homes = {Path.home(), Path(os.environ["XDG_CONFIG_HOME"]), Path(os.environ["XDG_DATA_HOME"])}
    assert all(home.is_relative_to(tmp_path.parents[0]) for home in homes)
