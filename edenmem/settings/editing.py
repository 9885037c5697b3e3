"""Change one setting in a configuration file, and keep the rest as it is."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from edenmem.errors import ConfigError
from edenmem.settings import keys
from edenmem.settings.load import load_settings


def edit_setting(
    path: Path, key: str, text: str | None, *, profile: str | None = None
) -> tuple[object, object]:
    """Set ``key`` to ``text``, or remove it (None); return the previous and the new value.

    Comments and layout stay. The file is replaced as a whole, and only the owner can read a new
    one. ``profile`` selects ``[profiles.NAME]`` in place of the top level.

    Raises:
        ConfigError: The key or the value is invalid, or the file cannot be read or written.
    """
    import tomlkit

    if key not in keys.defaults():
        raise keys.unknown(key, keys.defaults(), "unknown setting")
    value = None if text is None else keys.convert(key, text, "config set", text=True)
    if path.exists():
        load_settings(config=path, environ={})  # explains errors in the file
    document = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
    table: MutableMapping[str, Any] = document
    *tables, name = key.split(".")
    if profile:
        tables = ["profiles", profile, *tables]
    for each in tables:
        if each not in table:
            if value is None:
                return None, None
            table[each] = tomlkit.table(is_super_table=each != tables[-1])
        table = table[each]
    previous = tomlkit.item(table[name]).unwrap() if name in table else None
    if value is None:
        table.pop(name, None)
    else:
        table[name] = msgspec.to_builtins(value)
    if value is not None or previous is not None:
        _replace(path, tomlkit.dumps(document))
    return previous, value


def _replace(path: Path, text: str) -> None:
    """Write a file through a temporary one, which keeps its permissions."""
    target = path.resolve()  # a file that a symbolic link names stays where it is
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
