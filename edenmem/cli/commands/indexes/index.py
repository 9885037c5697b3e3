"""``edenmem index``: indexes of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.indexes.index_views import (
    conflict_columns,
    conflict_data,
    print_actions,
    print_differences,
    print_states,
    show_waiting,
)
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.times import parse_duration
from edenmem.errors import ExitCode, UsageError
from edenmem.models.indexes import IndexState

if TYPE_CHECKING:
    from edenmem.engine.indexes.manager import IndexAction, IndexKeeper
    from edenmem.engine.service import MemoryService

app = group("Create, update, list and drop indexes.")

#: States of an index that are not failures, including unsupported indexes.
_FINE = frozenset({"ready", "stale", "unwanted", "unavailable", "foreign"})

_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]…",
        help="Names, or kinds: ordinary, vector, text, search (vector and text), all.",
    ),
]
_Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the indexes can be queried.")
]
_Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Maximum time to wait: 90s, 10m.")
]


def _keeper(run: Invocation) -> IndexKeeper:
    """Return the index manager, with the dimensions of the embedding model."""

    async def keep(service: MemoryService) -> IndexKeeper:
        return service.indexes

    keeper = run.serve(keep)
    for notice in keeper.notices:
        run.out.note(notice)
    return keeper


@app.command("create", cls=Command)
def create(
    ctx: typer.Context,
    names: _Names = None,
    wait: _Wait = True,
    timeout: _Timeout = "15m",
    replace: Annotated[
        bool,
        typer.Option("--replace", help="First replace older unique indexes, after a confirmation."),
    ] = False,
    update: Annotated[
        bool,
        typer.Option("--update", help="Instead, update indexes that differ from their definition."),
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="With --update: also indexes that do not differ.")
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Create missing indexes, and wait until they can be queried. Safe to run again.

    The dimensions of the vector index come from the configured embedding model. Arrays and binary
    vectors use the same index. An existing index that differs from the expected definition is left
    unchanged (exit 1).

    --replace replaces the platform's unique index on facts, on a live database. Duplicates are
    rejected throughout. An interrupted run can be repeated.

    With --update, an Atlas search index answers with its old definition until the new one is
    built; on SQLite, full text and quantized vectors are rebuilt from the facts.

    \b
    edenmem index create
    edenmem index create vector --update --yes
    edenmem index create search --timeout 1h
    edenmem index create --replace --dry-run
    """
    run = invocation(ctx)
    if replace and (names or update):
        raise UsageError("--replace excludes NAME and --update")
    if rebuild and not update:
        raise UsageError("--rebuild needs --update")
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
    if update:
        actions = _update(run, keeper, names or (), rebuild=rebuild, yes=yes, dry_run=dry_run)
        if actions:
            _finish(run, keeper, actions, wait=wait and not dry_run, timeout=seconds)
        return
    replaced: list[IndexAction] = []
    if replace and (older := keeper.to_replace()):
        if not dry_run:
            for action in keeper.replace(older, dry_run=True):
                run.out.note(f"{action.name} on {action.state.collection}: {action.note}")
        if not dry_run and not confirm(f"Replace {_describe_indexes(older)}?", yes=yes):
            run.out.note("nothing was changed")
            return
        replaced = keeper.replace(older, dry_run=dry_run)
    done = {action.name for action in replaced}
    made = keeper.create(names or (), dry_run=dry_run)
    actions = [*replaced, *(action for action in made if action.name not in done)]
    _finish(run, keeper, actions, wait=wait and not dry_run, timeout=seconds)


@app.command("list", cls=Command)
def list_(
    ctx: typer.Context,
    names: _Names = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only search indexes and those to replace; exit with 1 if one cannot be queried"
            " or differs from its expected definition.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --check: wait until all are built.")
    ] = False,
    timeout: _Timeout = "15m",
    conflicts: Annotated[
        bool,
        typer.Option("--conflicts", help="Facts that the platform's own index would delete."),
    ] = False,
) -> None:
    """List the indexes of the store with their states.

    The unique index of the platform allows each sentence once per agent. When the platform
    recreates it, for example after edenmem is removed, it keeps one fact per sentence and deletes
    the others: --conflicts lists these.

    \b
    edenmem index list
    edenmem index list --wait && edenmem search tea --agent mira
    edenmem index list --conflicts --format csv > lost.csv
    """
    run = invocation(ctx)
    if conflicts:
        found = run.service.indexes.conflicts()
        run.out.listing(
            found, conflict_columns(run), data=conflict_data, empty="no facts would be deleted"
        )
        return
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
    states = keeper.states(names or ())
    check = check or wait
    if check and not names:
        states = [state for state in states if state.kind != "ordinary" or state.replaces]
    if wait:
        states = _wait(run, keeper, [state.name for state in states], seconds)
    print_states(run, states)
    if check and any(state.status not in _FINE for state in states):
        raise typer.Exit(ExitCode.SOME_FAILED)


@app.command("drop", cls=Command)
def drop(
    ctx: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…",
            help="Names, or kinds: ordinary, vector, text, search (vector and text), all.",
        ),
    ],
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Drop indexes by name or kind.

    Unique indexes, indexes of a SQLite file, and indexes that the platform also creates cannot be
    dropped: a kind skips them, and naming one is an error.

    \b
    edenmem index drop search
    """
    run = invocation(ctx)
    keeper = _keeper(run)
    planned = keeper.drop(names, dry_run=True)
    if dry_run:
        print_actions(run, planned)
        return
    states = [action.state for action in planned if action.outcome == "would_drop"]
    if not yes:
        for state in states:
            run.out.note(f"{state.name} on {state.collection}")
    if not confirm(f"Drop {_describe_indexes(states)}?", yes=yes):
        run.out.note("nothing was changed")
        return
    print_actions(run, keeper.drop(names))


def _update(
    run: Invocation,
    keeper: IndexKeeper,
    names: Sequence[str],
    *,
    rebuild: bool,
    yes: bool,
    dry_run: bool,
) -> Sequence[IndexAction]:
    """Update indexes that differ, or all of them, after a confirmation."""
    wanted = names or (("search",) if rebuild else ())
    states = [s for s in keeper.states(wanted) if s.status == "different" or rebuild]
    if not states:
        run.out.note("all indexes match their definitions")
        print_actions(run, [])
        return []
    print_differences(run, states)
    if not dry_run and not confirm(f"Update {_describe_indexes(states)}?", yes=yes):
        run.out.note("nothing was changed")
        return []
    return keeper.update(states, rebuild=rebuild, dry_run=dry_run)


def _describe_indexes(states: Sequence[IndexState]) -> str:
    return f"{len(states)} indexes" if len(states) > 1 else "this index"


def _wait(
    run: Invocation, keeper: IndexKeeper, names: Sequence[str], seconds: float
) -> list[IndexState]:
    with show_waiting(run) as progress:
        return list(keeper.wait(names, timeout=seconds, progress=progress))


def _finish(
    run: Invocation,
    keeper: IndexKeeper,
    actions: Sequence[IndexAction],
    *,
    wait: bool,
    timeout: float,
) -> None:
    """Wait for indexes, print the actions, and exit with 1 if some are not complete."""
    import msgspec

    if wait:
        building = [a.name for a in actions if a.state.status == "building"]
        now = {state.name: state for state in _wait(run, keeper, building, timeout)}
        actions = [msgspec.structs.replace(a, state=now.get(a.name, a.state)) for a in actions]
    print_actions(run, actions)
    late = [a.name for a in actions if wait and a.state.status == "building"]
    if late:
        run.out.note(
            f"still building: {', '.join(late)}; keep waiting with 'edenmem index list --wait'"
        )
    failed = [
        a for a in actions if a.outcome in ("different", "to_replace") or a.state.status == "failed"
    ]
    if late or failed:
        raise typer.Exit(ExitCode.SOME_FAILED)
