"""``edenmem index``: the indexes of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from edenmem.cli import options
from edenmem.cli.asking import confirm
from edenmem.cli.framework import Command, group
from edenmem.cli.index_views import (
    COLUMNS,
    shown_waiting,
    state_data,
    tell_actions,
    tell_differences,
)
from edenmem.cli.invocation import Invocation, invocation
from edenmem.cli.times import parse_duration
from edenmem.errors import ExitCode
from edenmem.models.indexes import IndexState

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.engine.indexes import IndexAction, IndexKeeper
    from edenmem.llm.protocol import LLM

app = group("Indexes: create, list, status, update, drop.")

T = TypeVar("T")

_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]…", help="Names, or kinds: ordinary, vector, text, search (both), all."
    ),
]
_NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait until they can be queried.")]
_Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="Wait no longer than this: 90s, 10m.")
]


def _with_keeper(run: Invocation, work: Callable[[IndexKeeper], T]) -> T:
    """Run work on the indexes; the embedding model is only asked for its dimensions."""
    from edenmem.engine.indexes import IndexKeeper

    async def main(model: LLM | None, embedder: Embedder | None) -> T:
        keeper = IndexKeeper(run.store, run.settings, embedder=embedder)
        for notice in keeper.notices:
            run.out.note(notice)
        return work(keeper)

    return run.with_models(main)


@app.command("create", cls=Command)
def create(
    ctx: typer.Context,
    names: _Names = None,
    no_wait: _NoWait = False,
    timeout: _Timeout = "15m",
    dry_run: options.DryRun = False,
) -> None:
    """Make the indexes that are missing, and wait until they can be queried. Safe to run again.

    The vector index takes its dimensions from the configured embedding model; it is the same for
    vectors that are stored as arrays and as bindata. An index that is there and is otherwise than
    wanted is left as it is (exit 1).

    \b
    edenmem index create
    edenmem index create search --timeout 1h
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()

    def work(keeper: IndexKeeper) -> int:
        actions = keeper.create(names or (), dry_run=dry_run)
        return _finish(run, keeper, actions, wait=not (no_wait or dry_run), timeout=seconds)

    _end(_with_keeper(run, work))


@app.command("list", cls=Command)
def list_(ctx: typer.Context, names: _Names = None) -> None:
    """List the indexes that the store needs, and how each is."""
    run = invocation(ctx)
    states = _with_keeper(run, lambda keeper: keeper.states(names or ()))
    run.out.listing(states, COLUMNS, data=state_data)


@app.command("status", cls=Command)
def status(
    ctx: typer.Context,
    names: _Names = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until none is being built.")] = False,
    timeout: _Timeout = "15m",
) -> None:
    """Tell how the search indexes are (or those named), and what is not as wanted.

    Exit 1 if one of them cannot be queried, or is otherwise than wanted.

    \b
    edenmem index status
    edenmem index status --wait --timeout 5m && edenmem search tea --agent mira
    """
    run = invocation(ctx)
    seconds = parse_duration(timeout, "--timeout").total_seconds()

    def work(keeper: IndexKeeper) -> list[IndexState]:
        states = keeper.states(names or ("search",))
        if wait:
            states = _waited(run, keeper, [state.name for state in states], seconds)
        return states

    states = _with_keeper(run, work)
    run.out.listing(states, COLUMNS, data=state_data)
    # What this server or configuration does not have is no failure of an index.
    wrong = [s for s in states if s.status not in ("ready", "stale", "unwanted", "unavailable")]
    _end(ExitCode.SOME_FAILED if wrong else ExitCode.OK)


@app.command("update", cls=Command)
def update(
    ctx: typer.Context,
    names: _Names = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make them anew also if they are as wanted.")
    ] = False,
    no_wait: _NoWait = False,
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

    def work(keeper: IndexKeeper) -> int:
        wanted = names or (("search",) if rebuild else ())
        states = [s for s in keeper.states(wanted) if s.status == "different" or rebuild]
        if not states:
            run.out.note("every index is as wanted")
            if run.out.is_data:
                run.out.objects([])
            return ExitCode.OK
        tell_differences(run, states)
        if not dry_run and not confirm(f"Update {_counted(states)}?", yes=yes):
            run.out.note("nothing was changed")
            return ExitCode.OK
        actions = keeper.update(states, anew=rebuild, dry_run=dry_run)
        return _finish(run, keeper, actions, wait=not (no_wait or dry_run), timeout=seconds)

    _end(_with_keeper(run, work))


@app.command("drop", cls=Command)
def drop(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names, or kinds: search.")],
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Drop indexes. Those that keep out duplicates, and those of a SQLite file, are not dropped.

    \b
    edenmem index drop search
    """
    run = invocation(ctx)

    def work(keeper: IndexKeeper) -> list[IndexAction]:
        states = keeper.states(names)
        for state in states:
            run.out.note(f"{state.name} on {state.collection}")
        if not dry_run and not confirm(f"Drop {_counted(states)}?", yes=yes):
            run.out.note("nothing was changed")
            return []
        return keeper.drop(states, dry_run=dry_run)

    tell_actions(run, _with_keeper(run, work))


def _counted(states: Sequence[IndexState]) -> str:
    return f"these {len(states)} indexes" if len(states) > 1 else "this index"


def _waited(
    run: Invocation, keeper: IndexKeeper, names: Sequence[str], seconds: float
) -> list[IndexState]:
    with shown_waiting(run) as tell:
        return list(keeper.wait(names, timeout=seconds, tell=tell))


def _finish(
    run: Invocation,
    keeper: IndexKeeper,
    actions: Sequence[IndexAction],
    *,
    wait: bool,
    timeout: float,
) -> int:
    """Wait for what is being built, tell what was done, and decide on the exit code."""
    import msgspec

    if wait:
        building = [a.name for a in actions if a.state.status == "building"]
        now = {state.name: state for state in _waited(run, keeper, building, timeout)}
        actions = [msgspec.structs.replace(a, state=now.get(a.name, a.state)) for a in actions]
    tell_actions(run, actions)
    late = [a.name for a in actions if wait and a.state.status == "building"]
    if late:
        run.out.note(
            f"{', '.join(late)}: still being built; 'edenmem index status --wait' goes on waiting"
        )
    failed = [a for a in actions if a.outcome == "different" or a.state.status == "failed"]
    return ExitCode.SOME_FAILED if late or failed else ExitCode.OK


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
