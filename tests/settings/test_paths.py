"""Addresses of stores, and their masked form."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.errors import ConfigError
from edenmem.settings import paths
from edenmem.settings.paths import redact_uri, sqlite_path, user_config_file, user_data_folder

BASE = Path("/base")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:////srv/memory.db", "/srv/memory.db"),
        ("sqlite:///srv/memory.db", "/base/srv/memory.db"),
        ("sqlite:///nodir/x.db", "/base/nodir/x.db"),
        ("sqlite:///memory.db", "/base/memory.db"),
        ("sqlite:///./data/memory.db", "/base/data/memory.db"),
        ("sqlite:///../memory.db", "/base/../memory.db"),
        ("sqlite:////srv/a b/ü.db", "/srv/a b/ü.db"),
        ("/srv/memory.db", "/srv/memory.db"),
        ("data/memory.sqlite3", "/base/data/memory.sqlite3"),
        ("mongodb://h/eden", None),
        ("mongodb+srv://h/eden", None),
    ],
)
def test_path_of_a_uri(uri: str, path: str | None) -> None:
    assert sqlite_path(uri, BASE) == (path and Path(path))


def test_a_tilde_is_the_home_folder() -> None:
    assert sqlite_path("sqlite:///~/memory.db", BASE) == Path.home() / "memory.db"
    assert sqlite_path("~/memory.db", BASE) == Path.home() / "memory.db"


@pytest.mark.parametrize(
    "uri",
    [
        "redis://h",
        "sqlite://x",
        "sqlite:///",
        "sqlite:////srv/",
        "postgres://a:hunter2@h",
        "x",
        ":",
    ],
)
def test_an_invalid_uri_is_rejected_without_its_password(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"invalid store URI") as caught:
        sqlite_path(uri, BASE)
    assert "hunter2" not in str(caught.value)
    assert "mongodb" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///:memory:",
        "sqlite:///memory.db?mode=ro",
        "sqlite:////srv/memory.db?cache=shared",
        "srv/a?1.db",
    ],
)
def test_uri_options_are_rejected(uri: str) -> None:
    """Dropping options would make one file of two addresses, or write a read-only file."""
    with pytest.raises(ConfigError, match=r"invalid store URI"):
        sqlite_path(uri, BASE)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://h/x", "mongodb://h/x"),
        ("mongodb://ann@h/x", "mongodb://ann@h/x"),
        ("mongodb://ann:pw@h1,h2:27017/x", "mongodb://ann:***@h1,h2:27017/x"),
        ("mongodb+srv://ann:p@w/d@h/x", "mongodb+srv://ann:***@h/x"),
        ("https://token@h/v1", "https://***@h/v1"),
        ("https://h/v1?key=abc&v=1", "https://h/v1?key=***&v=1"),
        (
            "mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:abc&tls=true",
            "mongodb://h/?authMechanismProperties=***&tls=true",
        ),
        ("cannot reach mongodb://a:pw@h (ann@example.com)", None),
        ("/home/a:b/memory.db", "/home/a:b/memory.db"),
    ],
)
def test_passwords_and_keys_are_masked(uri: str, shown: str | None) -> None:
    assert "pw" not in redact_uri(uri)
    if shown is not None:
        assert redact_uri(uri) == shown


@given(
    st.sampled_from(["mongodb", "mongodb+srv", "http", "https"]),
    st.text("abcXYZ019-._~!$&'()*+,;=%", min_size=0, max_size=5),
    st.text("PQR789:/@?#[]!$&=", min_size=1, max_size=12),
)
def test_unescaped_passwords_are_masked(scheme: str, user: str, password: str) -> None:
    uri = f"{scheme}://{user}:{password}@host.example.com/eden"
    assert redact_uri(uri) == f"{scheme}://{user}:***@host.example.com/eden"


def test_folders_follow_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"HOME": "/home/ann"}
    assert user_config_file(environ) == Path("/home/ann/.config/edenmem/edenmem.toml")
    assert user_data_folder(environ) == Path("/home/ann/.local/share/edenmem")
    assert user_data_folder({**environ, "XDG_DATA_HOME": "/d"}) == Path("/d/edenmem")


def test_the_linux_shortcut_agrees_with_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = user_config_file(), user_data_folder()
    monkeypatch.setattr(paths.sys, "platform", "another")
    assert (user_config_file(), user_data_folder()) == quick
