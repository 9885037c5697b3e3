"""Paths of the user's configuration and data, and addresses of stores."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from edenmem.errors import ConfigError

FILE_NAME = "edenmem.toml"
_FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
# Patterns are compiled on first use: together they take longer than most commands.
_SCHEME = r"(?i)([a-z][a-z0-9+.-]*):"


def user_config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's ``edenmem.toml``, which may not exist."""
    return _user_folder("XDG_CONFIG_HOME", ".config", "user_config_path", environ) / FILE_NAME


def user_data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the default database."""
    return _user_folder("XDG_DATA_HOME", ".local/share", "user_data_path", environ)


def user_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the cache folder."""
    return _user_folder("XDG_CACHE_HOME", ".cache", "user_cache_path", environ)


def stage_folder() -> Path:
    """Return the folder with what interrupted migrations have read of v1."""
    return user_cache_folder() / "migration"


def _user_folder(variable: str, default: str, function: str, environ: Mapping[str, str]) -> Path:
    # Importing platformdirs takes a tenth of a command's time; on Linux two lines replace it.
    if sys.platform == "linux" and environ.get("HOME"):
        named = environ.get(variable, "")
        base = Path(named) if Path(named).is_absolute() else Path(environ["HOME"], default)
        return base / "edenmem"
    import platformdirs

    folder: Path = getattr(platformdirs, function)("edenmem", appauthor=False)
    return folder


def lock(descriptor: int) -> None:
    """Lock an open file or folder, if the file system supports locks."""
    import fcntl  # most commands do without

    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file with memory in it: for its owner alone, and never through a symbolic link.

    An existing file loses the access of others before anything is written.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    try:
        if not is_private(os.fstat(descriptor)):
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_private(file: os.stat_result) -> bool:
    """Check whether only its owner can use a file."""
    return not file.st_mode & 0o077


def is_mongodb(uri: str) -> bool:
    """Check whether ``uri`` is a MongoDB address."""
    return uri.startswith(("mongodb://", "mongodb+srv://"))


def sqlite_path(uri: str, base: Path | None = None) -> Path | None:
    """Return the SQLite file of ``uri``, or None for MongoDB.

    ``sqlite:////srv/memory.db``, with four slashes, is absolute. ``sqlite:///data/memory.db`` and
    plain paths that end in .db, .sqlite or .sqlite3 are relative to ``base`` (default: the working
    folder).

    Raises:
        ConfigError: the URI is neither SQLite nor MongoDB.
    """
    if is_mongodb(uri):
        return None
    if uri.startswith("sqlite:///"):
        plain = uri.removeprefix("sqlite:///")
    elif re.match(_SCHEME, uri) is None and uri.endswith(_FILE_SUFFIXES):
        plain = uri
    else:
        plain = ""
    if not plain or plain.endswith("/"):
        raise ConfigError(
            f"invalid store URI {redact_uri(uri)!r}",
            hint="use sqlite:///path/to/file.db, mongodb://… or mongodb+srv://…",
        )
    if "?" in plain or plain == ":memory:":
        # Ignoring options would make one file of two addresses, and keep in-memory data on disk.
        raise ConfigError(
            f"invalid store URI {redact_uri(uri)!r}: options and in-memory databases are not "
            "supported",
            hint="use sqlite:///path/to/file.db",
        )
    return (base or Path.cwd()) / Path(plain).expanduser()


#: A byte that is not UTF-8, as `format_path` writes it.
_ESCAPED_BYTE = rb"\\x([0-9a-f]{2})"


def format_path(path: Path | str) -> str:
    """Format a path as valid text: bytes that are not UTF-8 become ``\\xNN``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def parse_path(text: str) -> Path:
    """Parse a path in the form of `format_path`."""
    path = Path(text)
    if "\\x" not in text or os.path.lexists(path):
        return path
    raw = re.sub(_ESCAPED_BYTE, lambda found: bytes([int(found[1], 16)]), os.fsencode(text))
    return Path(os.fsdecode(raw))


# The user part may hold an unescaped "@" or "/" by mistake: match up to the last "@".
_USERINFO = r"(?i)(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^:@/\s]*):(?P<secret>\S*)@"
_QUERY_CREDENTIAL = (
    r"(?i)(?P<name>[?&;][^=&;\s]*(?:password|passwd|secret|token|key|properties|sig)[^=&;\s]*=)"
    r"[^&;\s]+"
)
_USER_CREDENTIAL = r"(?i)(?P<scheme>https?://)[^/\s:@]+@"
MASK = "***"


def has_password(uri: str) -> bool:
    """Check whether ``uri`` holds a password or key."""
    return redact_uri(uri) != uri


def redact_uri(uri: str) -> str:
    """Mask passwords and keys in ``uri``, so that it is safe to print."""
    if "@" not in uri and "=" not in uri:
        return uri
    without = re.sub(_USERINFO, rf"\g<scheme>\g<user>:{MASK}@", uri)
    without = re.sub(_USER_CREDENTIAL, rf"\g<scheme>{MASK}@", without)
    return re.sub(_QUERY_CREDENTIAL, rf"\g<name>{MASK}", without)
