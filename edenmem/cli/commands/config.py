"""``edenmem config``: settings and their origins."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.terminal.prompts import ask_text
from edenmem.cli.terminal.tables import Column
from edenmem.errors import NotFoundError, StoreError, UsageError
from edenmem.settings.keys import (
    format_value,
    leaves,
)
from edenmem.settings.load import effective, masked
from edenmem.settings.paths import FILE_NAME, has_password, user_config_file
from edenmem.settings.schema import DEFAULTS, SECRETS

app = group("Show settings and their origins, and change them.")

_Row = tuple[str, object, str]


@app.command("show", cls=Command)
def show(
    run: Invocation,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]…", help="Only keys with this prefix, such as search or llm.fast."
        ),
    ] = None,
) -> None:
    """Show each setting with its value and origin. Secrets are never shown.

    'edenmem help settings' says what each one means.

    \b
    edenmem config show llm search.top_k
    edenmem config show --format json
    """
    settings = list(effective(run.loaded))
    known = [row[0] for row in settings]
    for prefix in keys or ():
        if not any(key.startswith(prefix) for key in known):
            raise NotFoundError(
                f"no such setting: {prefix!r}",
                hint=suggest(prefix, known) or "'edenmem config show' lists all",
            )
    numbers = cache(lambda: _numbers(run))
    rows = [
        _resolve(row, run, numbers)
        for row in settings
        if not keys or row[0].startswith(tuple(keys))
    ]
    if len(rows) == 1 and not run.out.is_data:
        run.out.fields([(column.title, column.value(rows[0])) for column in _COLUMNS])
    else:
        run.out.listing(rows, _COLUMNS, data=_data)


@app.command("set", cls=Command)
def set_(
    run: Invocation,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Setting, such as search.top_k.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="[VALUE]", help="New value; - reads it from stdin."),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the setting.")] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Change ./edenmem.toml, not the user's file.")
    ] = False,
) -> None:
    """Change a setting in the user's edenmem.toml, or in the file of --config.

    With --profile, the setting applies to this profile only. A secret is asked for or
    read from stdin.

    \b
    edenmem config set search.top_k 20
    edenmem config set search.top_k --unset
    edenmem config set llm.api_key - < key.txt
    """
    from edenmem.settings.load import edit_setting

    if unset and value is not None:
        raise UsageError("a value does not apply to --unset")
    named = run.config or os.environ.get("EDENMEM_CONFIG")
    if here and named:
        raise UsageError(f"--here does not apply: the configuration file is {named}")
    path = Path(FILE_NAME).absolute() if here else user_config_file()
    if named:
        path = Path(named).expanduser()
    new = None if unset else _read_value(key, value)
    previous, value_now = edit_setting(path, key, new, profile=run.profile)
    changed = {
        "key": key,
        "value": masked(key, value_now),
        "previous": masked(key, previous),
        "file": str(path.absolute()),
    }
    run.out.record(
        changed,
        [
            (key, format_value(changed["value"]) or "(not set)"),
            ("before", format_value(changed["previous"]) or "(not set)"),
            ("file", changed["file"]),
        ],
        data=dict,
    )
    run.reload()
    origin = run.loaded.origins[key]
    if not unset and str(path.absolute()) not in origin:
        run.out.note(f"warning: {origin} overrides this value")


def _read_value(key: str, value: str | None) -> str:
    """Return the value for a setting: from the command line, from stdin, or by asking.

    Raises:
        UsageError: The value is missing, or is a secret that the process list would show.
    """
    if value == "-":
        return sys.stdin.read().removesuffix("\n")
    if value is None:
        return ask_text(f"value of {key}", "VALUE", is_secret=key in SECRETS)
    if key in SECRETS or has_password(value):
        raise UsageError(
            f"the value of {key} would be visible in the process list",
            hint="leave it out to be asked for it, or use - to read it from stdin",
        )
    return value


def _resolve(row: _Row, run: Invocation, numbers: Callable[[], tuple[dict[str, Any], str]]) -> _Row:
    """Return the row with its effective value if that depends on other settings."""
    if row[0] == "store.uri" and not row[1]:
        from edenmem.engine.factory import store_uri

        return row[0], store_uri(run.settings), row[2]
    if row[0] in DEFAULTS and row[2] == "default":
        values, origin = numbers()
        return row[0], values.get(row[0], row[1]), origin or row[2]
    if row[0] == "embedding.provider" and row[1] == "auto":
        return row[0], row[1], f"{row[2]}, {run.service.embeddings.explain_provider()}"
    section, _, name = row[0].partition(".")
    if section == "search" and row[1] is None:
        values, reason = run.service.embeddings.explain_scale()
        return row[0], values[name], f"{row[2]}, {reason}"
    return row


def _numbers(run: Invocation) -> tuple[dict[str, Any], str]:
    """Return the defaults for this database, and their origin if it is another than usual.

    They are asked for once: each question to a server that does not answer takes seconds.
    """
    try:
        values = dict(leaves(run.service.scopes.in_database()))
        is_theirs = run.service.scopes.is_beside_platform()
    except StoreError as error:
        return {}, f"default ({error.message})"
    return values, "default, the platform's: it uses this database" if is_theirs else ""


def _data(row: _Row) -> dict[str, Any]:
    key, value, origin = row
    return {"key": key, "value": value, "origin": origin}


_COLUMNS: list[Column[_Row]] = [
    Column("key", lambda row: row[0], "name"),
    Column("value", lambda row: format_value(row[1]), "text"),
    Column("origin", lambda row: row[2]),
]
