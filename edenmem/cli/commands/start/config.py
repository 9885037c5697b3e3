"""``edenmem config``: the settings in force."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import invocation
from edenmem.cli.terminal.tables import Column
from edenmem.errors import NotFoundError
from edenmem.settings.schema import Settings

app = group("The settings in force, and where each comes from.")

_Row = tuple[str, object, str]


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]…", help="Only keys that begin so.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only those that are not the default.")
    ] = False,
) -> None:
    """Show each setting, its value and where it comes from. Secrets are never shown.

    \b
    edenmem config show llm search.top_k
    edenmem config show --changed --format json
    """
    from edenmem.settings.load import effective

    run = invocation(ctx)
    settings = list(effective(run.loaded))
    _check_known(keys or (), [row[0] for row in settings])
    rows = [
        _resolve(row, run.loaded.settings)
        for row in settings
        if (not keys or row[0].startswith(tuple(keys))) and not (changed and row[2] == "default")
    ]
    run.out.listing(rows, _COLUMNS, data=_data, empty="every setting has its default")


def _check_known(given: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a prefix that no setting has.

    Raises:
        NotFoundError: one of those given.
    """
    for prefix in given:
        if not any(key.startswith(prefix) for key in known):
            near = " or ".join(repr(key) for key in get_close_matches(prefix, known))
            raise NotFoundError(
                f"no such setting: {prefix!r}",
                hint=f"did you mean {near}?" if near else "'edenmem config show' lists all",
            )


def _resolve(row: _Row, settings: Settings) -> _Row:
    """The row with the value in force, where that depends on another setting."""
    if row[0] != "search.semantic_floor" or row[1] is not None:
        return row
    from edenmem.engine.search.floor import explain_floor

    floor, reason = explain_floor(settings)
    return row[0], floor, f"{row[2]}, {reason}"


def _data(row: _Row) -> dict[str, Any]:
    key, value, origin = row
    return {"key": key, "value": value, "origin": origin}


_COLUMNS: list[Column[_Row]] = [
    Column("key", lambda row: row[0], "name"),
    Column("value", lambda row: f"{row[1]:g}" if isinstance(row[1], float) else row[1], "text"),
    Column("origin", lambda row: row[2]),
]
