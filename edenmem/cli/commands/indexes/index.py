"""``edenmem index``: the indexes of the store."""

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

app = group("Indexes: create, list, status, conflicts, update, drop.")

#: States that are no failure of an index. What this server or configuration does not have is none.
_FINE = frozenset({"ready", "stale", "unwanted", "unavailable", "foreign"})

_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]…", help="Names, or kinds: ordinary, vector, text, search (both), all."
    ),
]
_Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the indexes can be queried.")
]
_Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Wait no longer than this: 90s, 10m.")
]


def _keeper(run: Invocation) -> IndexKeeper:
    """The keeper of the store's indexes; the embedding model only tells its dimensions."""

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
        typer.Option(
            "--replace", help="First replace older unique indexes by those of edenmem; asks."
        ),
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Make the indexes that are missing, and wait until they can be queried. Safe to run again.

    The vector index takes its dimensions from the configured embedding model; it is the same for
    vectors that are stored as arrays and as bindata. An index that is there and is otherwise than
    wanted is left as it is (exit 1).

    --replace replaces the platform's narrow unique index on facts, and unique indexes of earlier
    versions of edenmem, on a live database. Facts are protected from duplicates all the while. A
    run that was interrupted can be repeated.

    \b
    edenmem index create
    edenmem index create search --timeout 1h
    edenmem index create --replace --dry-run
    """
    run = invocation(ctx)
    if replace and names:
        raise UsageError("--replace takes no names", hint="leave out the names or --replace")
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
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
def list_(ctx: typer.Context, names: _Names = None) -> None:
    """List the indexes that the store needs, and how each is.

    \b
    edenmem index list
    """
    run = invocation(ctx)
    print_states(run, _keeper(run).states(names or ()))


@app.command("status", cls=Command)
def status(
    ctx: typer.Context,
    names: _Names = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until none is being built.")] = False,
    timeout: _Timeout = "15m",
) -> None:
    """Tell how the search indexes are (or those named), and what is not as wanted.

    Unique indexes that have to be replaced are listed too. Exit 1 if one of these indexes cannot
    be queried, or is otherwise than wanted.

    \b
    edenmem index status
    edenmem index status --wait --timeout 5m && edenmem search tea --agent mira
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
    if names:
        states = keeper.states(names)
    else:
        states = [s for s in keeper.states() if s.kind != "ordinary" or s.replaces]
    if wait:
        states = _wait(run, keeper, [state.name for state in states], seconds)
    print_states(run, states)
    wrong = [s for s in states if s.status not in _FINE]
    if wrong:
        raise typer.Exit(ExitCode.SOME_FAILED)


@app.command("conflicts", cls=Command)
def conflicts(ctx: typer.Context) -> None:
    """List the facts that the platform deletes once its own index is in place again.

    The platform's narrow unique index allows a sentence once for each agent. When it is created
    again, for example after edenmem was removed, the platform keeps one fact of each sentence and
    deletes the others, which are listed here.

    \b
    edenmem index conflicts
    edenmem index conflicts --format csv > lost.csv
    """
    run = invocation(ctx)
    found = run.service.indexes.conflicts()
    run.out.listing(
        found, conflict_columns(run), data=conflict_data, empty="no fact would be deleted"
    )


@app.command("update", cls=Command)
def update(
    ctx: typer.Context,
    names: _Names = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make them anew also if they are as wanted.")
    ] = False,
    wait: _Wait = True,
    timeout: _Timeout = "15m",
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Change indexes that are otherwise than wanted: shows what differs, and asks.

    A search index of Atlas answers with its old definition until the new one is built. On SQLite
    this makes full text and vector codes anew from the facts.

    \b
    edenmem index update --dry-run
    edenmem index update vector --yes
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
    wanted = names or (("search",) if rebuild else ())
    states = [s for s in keeper.states(wanted) if s.status == "different" or rebuild]
    if not states:
        run.out.note("every index is as wanted")
        print_actions(run, [])
        return
    print_differences(run, states)
    if not dry_run and not confirm(f"Update {_describe_indexes(states)}?", yes=yes):
        run.out.note("nothing was changed")
        return
    actions = keeper.update(states, rebuild=rebuild, dry_run=dry_run)
    _finish(run, keeper, actions, wait=wait and not dry_run, timeout=seconds)


@app.command("drop", cls=Command)
def drop(
    ctx: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…", help="Names, or kinds: ordinary, vector, text, search (both), all."
        ),
    ],
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Drop indexes. Those that keep out duplicates, and those of a SQLite file, are not dropped.

    Nor are those that the platform creates too. Named by a kind they are left out; named one by
    one they are refused, and nothing is dropped.

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


def _describe_indexes(states: Sequence[IndexState]) -> str:
    return f"these {len(states)} indexes" if len(states) > 1 else "this index"


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
    """Wait for what is being built, and tell what was done; exits with 1 if not all of it was."""
    import msgspec

    if wait:
        building = [a.name for a in actions if a.state.status == "building"]
        now = {state.name: state for state in _wait(run, keeper, building, timeout)}
        actions = [msgspec.structs.replace(a, state=now.get(a.name, a.state)) for a in actions]
    print_actions(run, actions)
    late = [a.name for a in actions if wait and a.state.status == "building"]
    if late:
        run.out.note(
            f"{', '.join(late)}: still being built; 'edenmem index status --wait' goes on waiting"
        )
    failed = [
        a for a in actions if a.outcome in ("different", "to_replace") or a.state.status == "failed"
    ]
    if late or failed:
        raise typer.Exit(ExitCode.SOME_FAILED)
