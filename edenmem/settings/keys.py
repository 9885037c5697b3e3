"""Settings as a flat list of dotted keys, and the conversion of values.

The type of a key is the type of its field in `edenmem.settings.schema`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from edenmem.errors import ConfigError
from edenmem.invalid import nearest_word
from edenmem.settings.paths import redact_uri
from edenmem.settings.schema import DEFAULTS, NOT_SETTINGS, SECRETS, Settings

#: Settings that name a file or folder; relative paths start at the folder of their file.
PATHS = frozenset(
    {
        "backup.folder",
        "backup.seal_file",
        "llm.replay",
        "llm.record",
        "embedding.local_path",
        "search.rerank_path",
        "server.waiting_folder",
    }
)
#: Settings that may hold a password in a URL.
ADDRESSES = frozenset(
    {
        "store.uri",
        "llm.base_url",
        "embedding.base_url",
        "search.rerank_url",
        "server.upstream_url",
    }
)


@functools.cache
def defaults() -> Mapping[str, object]:
    """Return each key with its default, in the order of the schema."""
    return dict(leaves(Settings()))


def platform_default(settings: Settings, key: str, value: object) -> int | str | None:
    """Return the platform's default if it replaces this value of a setting, else None.

    A configured value is kept, and so is any value other than the default.
    """
    numbers = DEFAULTS.get(key)
    if numbers is None or key in settings.configured or value != numbers.own:
        return None
    return numbers.platform


def for_platform(settings: Settings) -> Settings:
    """Return the settings with the platform's defaults."""

    def replaced(section: msgspec.Struct, table: str) -> Any:
        found: dict[str, Any] = {}
        for name in section.__struct_fields__:
            value = getattr(section, name)
            if isinstance(value, msgspec.Struct):
                found[name] = replaced(value, f"{table}{name}.")
            elif (number := platform_default(settings, f"{table}{name}", value)) is not None:
                found[name] = number
        return msgspec.structs.replace(section, **found)

    return msgspec.structs.replace(
        settings,
        formation=replaced(settings.formation, "formation."),
        scopes=replaced(settings.scopes, "scopes."),
    )


def leaves(section: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield each dotted key of ``section`` with its value, in the order of the schema."""
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{prefix}{name}.")
        elif name not in NOT_SETTINGS:
            yield f"{prefix}{name}", value


@functools.cache
def tables() -> frozenset[str]:
    """Return the dotted names of tables: "llm", "scopes.user", …."""
    return frozenset(
        ".".join(parts[:depth])
        for parts in (key.split(".") for key in defaults())
        for depth in range(1, len(parts))
    )


@functools.cache
def environment_names() -> Mapping[str, str]:
    """Map environment variables to keys."""
    names = {"EDENMEM_" + key.upper().replace(".", "_"): key for key in defaults()}
    del names["EDENMEM_STORE_URI"]
    return {"EDENMEM_URI": "store.uri", **names}


def flatten(table: Mapping[str, Any], where: str, prefix: str = "") -> dict[str, object]:
    """Return the values of a table by dotted key.

    Raises:
        ConfigError: a name is unknown, or a value is in place of a table.
    """
    flat: dict[str, object] = {}
    for name, value in table.items():
        key = prefix + name
        if key in defaults() and "." not in name:
            flat[key] = value
        elif key in tables() and "." not in name:
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: {key} must be a table, [{key}]")
            flat |= flatten(value, where, f"{key}.")
        else:
            raise unknown(key, (*defaults(), *tables()), f"{where}: unknown setting")
    return flat


def unknown(given: str, known: Iterable[str], problem: str) -> ConfigError:
    """Return the error for an unknown name, with the closest known name as a hint."""
    names = list(known)
    table, dot, word = given.rpartition(".")
    if several := [name for name in names if name.startswith(table + dot) and dot]:
        several = [name for name in several if name.endswith(f"_{word}")]
    if len(several) > 1:  # "llm.model": there are several models
        return ConfigError(
            f"{problem} {given!r}",
            hint=f"did you mean {', '.join(several[:-1])} or {several[-1]}?",
        )
    nearest = nearest_word(given, names) or _in_another_table(given, names)
    return ConfigError(
        f"{problem} {given!r}",
        hint=f"did you mean {nearest}?" if nearest else "list settings: edenmem config show",
    )


def _in_another_table(given: str, names: Sequence[str]) -> str | None:
    """Return the key whose last part is meant: ``llm.base_url`` for ``base_url``."""
    if given.startswith("EDENMEM_"):
        found = [name for name in names if name.endswith(f"_{given.rpartition('_')[2]}")]
        return found[0] if len(found) == 1 else None
    last = {name.rpartition(".")[2]: name for name in reversed(names)}
    return last.get(nearest_word(given.rpartition(".")[2], last) or "")


def convert(key: str, raw: object, where: str, *, text: bool) -> object:
    """Convert ``raw`` to the type of ``key``; with ``text``, from a string outside TOML.

    Raises:
        ConfigError: the value is invalid; the message has ``where`` and the expected type.
    """
    kind = _type(key)
    try:
        if text and isinstance(defaults()[key], dict | tuple):
            raw = msgspec.json.decode(str(raw))
        value = msgspec.convert(raw, kind, strict=not text)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("not finite")
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ConfigError(
            f"{where}: {key} must be {_describe_type(kind)}{_describe_value(key, raw)}"
        ) from error
    return value


def format_value(value: object) -> str:
    """Format a value as in a configuration file: true, "text", [1, 2]; "" if it is not set."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        pairs = (f"{format_value(name)} = {format_value(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    return json.dumps(value, ensure_ascii=False)  # in TOML, scalars are written as in JSON


def accepted_values(key: str) -> str:
    """Describe the values that a setting accepts: "a whole number of at least 1"."""
    return _describe_type(_type(key))


def _type(key: str) -> Any:
    section: Any = Settings
    for name in key.split("."):
        section = _types(section)[name]
    return section


@functools.cache
def _types(section: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a section's fields, which msgspec evaluates slowly."""
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def _describe_value(key: str, raw: object) -> str:
    if key in SECRETS:
        return ""
    shown = repr(redact_uri(raw) if isinstance(raw, str) else raw)
    return f", not {shown if len(shown) <= 60 else shown[:60] + '…'}"


def _describe_type(kind: Any) -> str:
    from msgspec import inspect

    match inspect.type_info(kind):
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(map(str, values))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=low, le=high):
            return "a whole number" + _bounds(low, None, high)
        case inspect.FloatType(ge=low, gt=above, le=high):
            return "a number" + _bounds(low, above, high)
        case inspect.UnionType():
            return f"{_describe_type(get_args(kind)[0])}, or null"
        case inspect.StrType(pattern=str()):
            stages = "+rerank, +recency or +mmr (convex and text also with +source)"
            return f"convex, rrf, semantic or text, or one of them with {stages}"
        case inspect.VarTupleType():
            return "a list of texts"
        case inspect.DictType(value_type=inspect.TupleType()):
            return "a table of model = [input price, output price]"
        case inspect.DictType(value_type=inspect.StrType()):
            return "a table of name = text"
        case inspect.DictType():
            return "a table of model = price"
        case _:
            return "text"


def _bounds(low: float | None, above: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if above is not None:
        return f" above {above:g}"
    return f" of at least {low:g}" if low is not None else ""
