"""Change one setting in a configuration file, and keep the rest as it is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
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
    target = path.resolve()  # a file that a symbolic link names stays where it is
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(target.parent):
            before = target.read_bytes().decode() if target.exists() else ""  # with its line ends
            document = tomlkit.parse(before)
            previous = _change(document, key, value, profile)
            after = tomlkit.dumps(document)
            if after != before:
                _replace(target, after)
    except OSError as error:
        raise ConfigError(f"cannot change {path}: {error.strerror}") from error
    except (tomlkit.exceptions.TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return previous, value


def _change(
    document: MutableMapping[str, Any], key: str, value: object, profile: str | None
) -> object:
    """Set or remove a key, and return its previous value."""
    import tomlkit

    table = document
    *tables, name = key.split(".")
    if profile:
        tables = ["profiles", profile, *tables]
    for each in tables:
        if each not in table:
            if value is None:
                return None
            table[each] = tomlkit.table(is_super_table=each != tables[-1])
        table = table[each]
    previous = tomlkit.item(table[name]).unwrap() if name in table else None
    if value is None:
        table.pop(name, None)
    else:
        table[name] = msgspec.to_builtins(value)
    return previous


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other programs from an edit in the same folder, which would lose one of both."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, text: str) -> None:
    """Replace a file, if the new one is valid; its permissions stay."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            load_settings(config=draft, environ={})
        except ConfigError as error:
            reason = error.message.replace(str(draft), str(target))
            raise ConfigError(reason, hint=error.hint) from error
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
