"""Load the configuration, with the origin of each value.

The first source with a value wins:

1. an option of the command;
2. an environment variable: ``EDENMEM_URI`` for ``store.uri``, ``EDENMEM_<SECTION>_<NAME>`` for
   others (``EDENMEM_SCOPES_USER_WORD_LIMIT``). Tables are JSON; an empty variable is unset;
3. ``edenmem.toml`` in the working folder, then the user's file; ``--config`` or ``EDENMEM_CONFIG``
   replaces both. In each file ``[profiles.NAME.…]`` of the selected profile overrides the top
   level. ``--profile``, ``EDENMEM_PROFILE`` or ``default_profile`` in a file select the profile;
4. ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL``, for the LLM and the embeddings;
5. the default.

A table of prices is one value. All profiles are checked, not only the selected one.

An ``edenmem.toml`` in the working folder may be untrusted: an address from this file never receives
a key from the user's file or ``OPENAI_API_KEY``, only a key from the same file, an option or an
``EDENMEM_`` variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edenmem.errors import ConfigError
from edenmem.settings import keys
from edenmem.settings.paths import (
    FILE_NAME,
    is_private,
    lock,
    redact_uri,
    sqlite_path,
    user_config_file,
)
from edenmem.settings.schema import SECRETS, Settings, mask

#: Variables of edenmem that are not settings.
_OTHER_VARIABLES = frozenset({"EDENMEM_PROFILE", "EDENMEM_CONFIG", "EDENMEM_ACTOR"})
_OPENAI = {
    "llm.api_key": "OPENAI_API_KEY",
    "llm.base_url": "OPENAI_BASE_URL",
    "embedding.api_key": "OPENAI_API_KEY",
    "embedding.base_url": "OPENAI_BASE_URL",
}
#: Maximum size of a configuration file; enough for 10,000 prices.
_MAX_BYTES = 1024 * 1024
#: A dotted key of more parts than any setting has, which takes tomllib minutes.
_DEEP_KEY = re.compile(
    r"""(?<![\w.-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}"""
)
#: The address that receives each key.
_ADDRESS_OF = {
    "llm.api_key": "llm.base_url",
    "embedding.api_key": "embedding.base_url",
    "search.rerank_api_key": "search.rerank_url",
    "server.upstream_api_key": "server.upstream_url",
}


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings and their origins.

    ``origins`` maps each dotted key to "default", an option of the command line ("--set"), an
    environment variable, or a file with the table of the profile. ``profiles`` are all known
    profiles. ``files`` lists the files read, strongest first; ``warnings`` are for stderr.
    """

    settings: Settings
    origins: dict[str, str]
    profile: str | None = None
    profiles: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


class _File(NamedTuple):
    path: Path
    top: dict[str, object]
    profiles: dict[str, dict[str, object]]
    default_profile: str | None
    in_folder: bool  # found in the working folder, so perhaps untrusted


class _Layer(NamedTuple):
    """Values of one source. ``base`` is the folder of relative paths."""

    values: Mapping[str, object]
    origin: Callable[[str], str]
    base: Path
    text: bool  # not from TOML: all values are strings


def load_settings(
    *,
    config: Path | None = None,
    profile: str | None = None,
    overrides: Mapping[str, str] = {},
    options: Mapping[str, str] = {},
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LoadedSettings:
    """Load the settings of this process.

    ``overrides`` are values by dotted key ("store.uri"). ``options`` names the option that set each
    of them (default: "--set").

    Raises:
        ConfigError: a file is unreadable, a name is unknown, or a value is invalid.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    files = _read_files(config, environ, cwd)
    requested = profile or environ.get("EDENMEM_PROFILE") or None
    chosen = _choose_profile(requested, files)

    for key in overrides:
        if key not in keys.defaults():
            raise keys.unknown(key, keys.defaults(), "--set: unknown setting")
    layers = [
        _Layer(overrides, lambda key: options.get(key, "--set"), cwd, text=True),
        _environment(environ, cwd),
        *(layer for file in files for layer in _file_layers(file, chosen)),
    ]
    values = dict(keys.defaults())
    origins = dict.fromkeys(values, "default")
    for layer in reversed(layers):
        for key, raw in layer.values.items():
            origins[key] = layer.origin(key)
            value = keys.convert(key, raw, origins[key], text=layer.text)
            values[key] = _anchor(key, value, layer.base, origins[key])
    folders = _origins((file for file in files if file.in_folder), chosen)
    own = _origins((file for file in files if not file.in_folder), chosen)
    kept_back: list[str] = []
    for key, address in _ADDRESS_OF.items():
        if origins[address] in folders and origins[key] in own:
            kept_back.append(
                f"{key} from {origins[key]} is not sent to {address} from {origins[address]}"
            )
            values[key], origins[key] = keys.defaults()[key], "default"
    for key, variable in _OPENAI.items():
        if key in _ADDRESS_OF and origins[_ADDRESS_OF[key]] in folders:
            continue
        if not values[key] and environ.get(variable):
            values[key], origins[key] = environ[variable], variable

    tree = _nest(values)
    for section in ("llm", "embedding"):
        tree[section]["inherited"] = [
            key.partition(".")[2]
            for key, variable in _OPENAI.items()
            if key.startswith(f"{section}.") and origins[key] == variable
        ]
    tree["configured"] = [key for key, origin in origins.items() if origin != "default"]
    settings = msgspec.convert(tree, Settings)
    return LoadedSettings(
        settings=settings,
        origins=origins,
        profile=chosen,
        profiles=tuple(sorted({name for file in files for name in file.profiles})),
        files=tuple(file.path for file in files),
        warnings=(*_warn_exposed(files), *kept_back),
    )


class Setting(NamedTuple):
    """A setting with its effective value, and where that comes from."""

    key: str
    value: object
    origin: str


def effective(loaded: LoadedSettings) -> list[Setting]:
    """Return each effective setting with its origin, secrets masked, for ``config show``."""
    values = keys.leaves(loaded.settings)
    return [Setting(key, masked(key, value), loaded.origins[key]) for key, value in values]


def masked(key: str, value: object) -> object:
    """Return the value of a setting without secrets."""
    return None if value is None else mask(key.rpartition(".")[2], value)


def _read_files(config: Path | None, environ: Mapping[str, str], cwd: Path) -> list[_File]:
    named = config or (Path(environ["EDENMEM_CONFIG"]) if environ.get("EDENMEM_CONFIG") else None)
    if named is not None:
        path = cwd / named.expanduser()
        if not path.exists():
            raise ConfigError(f"configuration file not found: {path}")
        return [_read(path, in_folder=False)]
    found: list[Path] = []
    for path in (cwd / FILE_NAME, user_config_file(environ)):
        if path.exists() and not any(path.samefile(other) for other in found):
            found.append(path)
    return [_read(path, in_folder=path == cwd / FILE_NAME) for path in found]


def _read(path: Path, *, in_folder: bool) -> _File:
    import tomllib

    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(
                f"{path} is larger than {_MAX_BYTES // 1024} KiB",
                hint="select a configuration file with --config or EDENMEM_CONFIG",
            )
        text = raw.decode("utf-8")
        if deep := _DEEP_KEY.search(text):
            raise ConfigError(f"{path} has a key of more than 32 parts: {deep[0]:.60}")
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} has values nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    default_profile = tables.pop("default_profile", None)
    if not isinstance(default_profile, str | None):
        raise ConfigError(f"{path}: default_profile must be the name of a profile")
    profiles = tables.pop("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise ConfigError(f"{path}: profiles must be tables, [profiles.NAME.…]")
    return _File(
        path,
        _check_table(tables, str(path)),
        {
            name: _check_table(table, f"{path} [profiles.{name}]")
            for name, table in profiles.items()
        },
        default_profile,
        in_folder,
    )


def _check_table(table: Mapping[str, Any], where: str) -> dict[str, object]:
    flat = keys.flatten(table, where)
    for key, raw in flat.items():
        keys.convert(key, raw, where, text=False)
    return flat


def _choose_profile(requested: str | None, files: Iterable[_File]) -> str | None:
    chosen = requested or next((f.default_profile for f in files if f.default_profile), None)
    known = sorted({name for file in files for name in file.profiles})
    if chosen is None or chosen in known:
        return chosen
    raise ConfigError(
        f"unknown profile: {chosen!r}",
        hint=f"profiles: {', '.join(known)}" if known else "no configuration file has profiles",
    )


def _environment(environ: Mapping[str, str], cwd: Path) -> _Layer:
    ours = [name for name in environ if name.startswith("EDENMEM_")]
    names = keys.environment_names() if ours else {}
    variables: dict[str, str] = {}
    for name in ours:
        if name in names:
            variables[names[name]] = name
        elif name not in _OTHER_VARIABLES:
            known = (*names, *_OTHER_VARIABLES)
            raise keys.unknown(name, known, "unknown environment variable")
    values = {key: environ[name] for key, name in variables.items() if environ[name]}
    return _Layer(values, variables.__getitem__, cwd, text=True)


def _file_layers(file: _File, profile: str | None) -> Iterable[_Layer]:
    base = file.path.parent
    if profile in file.profiles:
        where = f"{file.path} [profiles.{profile}]"
        yield _Layer(file.profiles[profile], lambda key: where, base, text=False)
    yield _Layer(file.top, lambda key: str(file.path), base, text=False)


def _origins(files: Iterable[_File], profile: str | None) -> set[str]:
    """Return the names of these files in `LoadedSettings.origins`."""
    return {layer.origin("") for file in files for layer in _file_layers(file, profile)}


def _anchor(key: str, value: object, base: Path, where: str) -> object:
    """Make a relative path absolute."""
    if not isinstance(value, str) or not value:
        return value
    if key in keys.PATHS:
        return str(base / Path(value).expanduser())
    if key == "store.uri":
        try:
            path = sqlite_path(value, base)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error
        return value if path is None else f"sqlite:///{path}"
    return value


def _nest(values: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *tables, name = key.split(".")
        inner = tree
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[name] = value
    return tree


def _warn_exposed(files: Iterable[_File]) -> Iterable[str]:
    """Warn about files with secrets that other users of this machine can read."""
    for file in files:
        is_exposed = not is_private(file.path.stat())
        if is_exposed and any(map(_has_secret, (file.top, *file.profiles.values()))):
            yield (
                f"{file.path} holds a secret and is readable by other users of this machine:"
                f" chmod 600 {file.path}"
            )


def _has_secret(values: Mapping[str, object]) -> bool:
    return any(values.get(key) for key in SECRETS) or any(
        redact_uri(str(values.get(key, ""))) != str(values.get(key, "")) for key in keys.ADDRESSES
    )


# -- changing a setting ----------------------------------------------------------------------------


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
        lock(descriptor)
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
