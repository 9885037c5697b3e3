"""``edenmem index``: indexes of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import OutputFormat, show_progress
from edenmem.cli.terminal.tables import Column
from edenmem.errors import UsageError
from edenmem.models.indexes import INDEX_STEP, IndexState
from edenmem.models.integrity import Finding
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.indexes import IndexAction, IndexKeeper


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
    keeper = run.with_models(lambda service: service.indexes)
    run.out.notes(keeper.notices)
    return keeper


@app.command("create", cls=Command)
def create(
    run: Invocation,
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
    if replace and (names or update):
        raise UsageError("--replace excludes NAME and --update")
    options.needs({"--rebuild": rebuild}, "--update", update)
    seconds = options.parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
    actions: list[IndexAction] = []
    if update:
        wanted = names or (("search",) if rebuild else ())
        states = [s for s in keeper.states(wanted) if s.status == "different" or rebuild]
        if not states:
            run.out.note("all indexes match their definitions")
            run.out.data([])
            return
        for state in states:  # what the update changes
            run.out.note(f"{state.name} on {state.collection}")
            run.out.notes(
                f"  {difference}" for difference in state.differences or ("will be rebuilt",)
            )
        run.confirm(f"Update {many(len(states), 'index', 'indexes')}?", yes=yes or dry_run)
        actions += keeper.update(states, rebuild=rebuild, dry_run=dry_run)
    else:
        if replace and (older := keeper.to_replace()):
            if not dry_run:
                run.out.notes(
                    f"{action.name} on {action.state.collection}: {action.note}"
                    for action in keeper.replace(older, dry_run=True)
                )
                run.confirm(f"Replace {many(len(older), 'index', 'indexes')}?", yes=yes)
            actions += keeper.replace(older, dry_run=dry_run)
        done = {action.name for action in actions}
        made = keeper.create(names or (), dry_run=dry_run)
        actions += [action for action in made if action.name not in done]
    waits = wait and not dry_run
    if waits:
        building = [a.name for a in actions if a.state.status == "building"]
        now = {state.name: state for state in _wait(run, keeper, building, seconds)}
        actions = [msgspec.structs.replace(a, state=now.get(a.name, a.state)) for a in actions]
    _print_actions(run, actions)
    late = [a.name for a in actions if waits and a.state.status == "building"]
    if late:
        run.out.note(
            f"still building: {', '.join(late)}; keep waiting with 'edenmem index list --wait'"
        )
    unfinished = ("different", "to_replace")
    end_if(late or any(a.outcome in unfinished or a.state.status == "failed" for a in actions))


@app.command("list", cls=Command)
def list_(
    run: Invocation,
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
    if conflicts:
        found = run.service.indexes.conflicts()
        run.out.listing(
            found,
            _CONFLICTS,
            data=lambda each: {
                "id": each.target_id,
                **(to_data(each.scope) if each.scope else {"agent_id": each.agent_id}),
                "content": each.text,
                "kept": each.related[0],
            },
            empty="no facts would be deleted",
        )
        return
    seconds = options.parse_duration(timeout, "--timeout").total_seconds()
    keeper = _keeper(run)
    states = keeper.states(names or ())
    check = check or wait
    if check and not names:
        states = [state for state in states if state.kind != "ordinary" or state.replaces]
    if wait:
        states = _wait(run, keeper, [state.name for state in states], seconds)
    _print_states(run, states)
    end_if(check and any(state.status not in _FINE for state in states))


@app.command("drop", cls=Command)
def drop(
    run: Invocation,
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
    keeper = _keeper(run)
    planned = keeper.drop(names, dry_run=True)
    if dry_run:
        _print_actions(run, planned)
        return
    states = [action.state for action in planned if action.outcome == "would_drop"]
    if not yes:
        run.out.notes(f"{state.name} on {state.collection}" for state in states)
    run.confirm(f"Drop {many(len(states), 'index', 'indexes')}?", yes=yes)
    _print_actions(run, keeper.drop(names))


def _wait(
    run: Invocation, keeper: IndexKeeper, names: Sequence[str], seconds: float
) -> list[IndexState]:
    """Wait for indexes, and show their progress; a pipe gets one note."""
    noted: set[str] = set()
    with show_progress(run.out) as progress:

        def report(states: Sequence[IndexState]) -> None:
            building = [state.name for state in states if state.status == "building"]
            if run.out.shows_progress:
                text = f"building {', '.join(building)}" if building else "built"
                progress.say(text, len(states) - len(building), len(states))
            elif new := [name for name in building if name not in noted]:
                noted.update(new)
                run.out.note(f"waiting for indexes: {', '.join(new)}")

        return list(keeper.wait(names, timeout=seconds, progress=report))


_OUTCOMES = {
    "made": "created",
    "there": "exists",
    "different": "differs from its definition; update with 'edenmem index create --update'",
    "to_replace": "unchanged; replace with 'edenmem index create --replace'",
    "left_out": "skipped",
    "updated": "updated",
    "dropped": "dropped",
    "replaced": "replaced",
    "would_make": "would be created",
    "would_update": "would be updated",
    "would_drop": "would be dropped",
    "would_replace": "would be replaced",
}


def _describe_state(state: IndexState) -> str:
    if state.status == "building" and state.queryable:
        return "building, still answers with the old definition"
    return "not needed" if state.status == "unwanted" else state.status


def _differences(state: IndexState) -> str:
    """Return the differences and the note of an index."""
    return "; ".join([*state.differences, *([state.note] if state.note else [])])


def _list_note(state: IndexState) -> str:
    word = _describe_state(state)
    return "; ".join(filter(None, (word if word != state.status else "", _differences(state))))


_COLUMNS: list[Column[IndexState]] = [
    Column("name", lambda state: state.name, "name"),
    Column("kind", lambda state: "unique" if state.unique else state.kind),
    Column("collection", lambda state: state.collection),
    Column("state", lambda state: "not needed" if state.status == "unwanted" else state.status),
    Column("note", _list_note, "text"),
]


def _print_states(run: Invocation, states: Sequence[IndexState]) -> None:
    """Print indexes, with their notes below the table."""
    if run.out.is_data or run.out.format is OutputFormat.MARKDOWN:
        run.out.listing(states, _COLUMNS, data=msgspec.to_builtins)
        return
    run.out.listing(states, _COLUMNS[:-1])
    notes: dict[str, list[str]] = {}
    for state in states:
        if note := _list_note(state):
            notes.setdefault(note, []).append(state.name)
    if notes:
        run.out.line()
    for note, names in notes.items():
        run.out.paragraph("", f"{', '.join(names)}: {note}", indent=2)


def summarize_steps(steps: Sequence[str]) -> list[str]:
    """Summarize the steps that prepare a store: the schema, and indexes by collection."""
    migrations = [step for step in steps if step.startswith("migration ")]
    indexes = Counter(step.partition(INDEX_STEP)[0] for step in steps if INDEX_STEP in step)
    summary = [step for step in steps if step not in migrations and INDEX_STEP not in step]
    if migrations:
        number = migrations[-1].removeprefix("migration ").partition("_")[0]
        summary.append(f"the schema (version {int(number)})")
    if count := indexes.total():
        by_collection = ", ".join(f"{name} {number}" for name, number in indexes.items())
        summary.append(f"{many(count, 'index', 'indexes')}: {by_collection}")
    return summary


_CONFLICTS: list[Column[Finding]] = [
    Column("id", lambda finding: finding.target_id, "id"),
    Column("scope", lambda finding: finding.scope, names="scope"),
    Column("content", lambda finding: finding.text, "text"),
    Column("kept", lambda finding: finding.related[0], "id"),
]


def _print_actions(run: Invocation, actions: Sequence[IndexAction]) -> None:
    """Print actions; existing ordinary indexes are only counted."""
    if run.out.data(
        actions,
        lambda a: {
            "outcome": a.outcome,
            **msgspec.to_builtins(a.state),
            "note": a.note or a.state.note,
        },
    ):
        return
    quiet = [a for a in actions if a.outcome == "there" and a.state.kind == "ordinary"]
    if quiet:
        run.out.line(f"ordinary indexes that exist: {len(quiet)}")
    for action in actions:
        if action in quiet:
            continue
        title, note = (
            f"{action.name}: {_OUTCOMES[action.outcome]}",
            action.note or action.state.note,
        )
        if action.outcome == "would_replace":
            run.out.paragraph("", f"{title}: {action.note}", indent=2)
            continue
        if action.outcome in ("made", "updated", "there") and action.state.status != "ready":
            title += f", {_describe_state(action.state)}"
        run.out.safe(title)
        if action.outcome == "different":
            note = _differences(action.state)
        if note:
            run.out.paragraph("  ", note)
