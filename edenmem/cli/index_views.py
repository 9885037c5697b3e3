"""How indexes look: in a list, while they are built, and what was done to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.cli.invocation import Invocation
from edenmem.cli.tables import Column
from edenmem.cli.views import labelled
from edenmem.models.indexes import IndexState
from edenmem.models.integrity import Finding

if TYPE_CHECKING:
    from edenmem.engine.indexes import IndexAction

_OUTCOMES = {
    "made": "made",
    "there": "is there already",
    "different": "is otherwise than wanted; 'edenmem index update' changes it",
    "to_replace": "left as it is; 'edenmem index create --replace' exchanges it",
    "left_out": "left out",
    "updated": "updated",
    "dropped": "dropped",
    "replaced": "replaced",
    "would_make": "would be made",
    "would_update": "would be updated",
    "would_drop": "would be dropped",
    "would_replace": "would be replaced",
}


def state_word(state: IndexState) -> str:
    """The state in a word or two."""
    if state.status == "building" and state.queryable:
        return "building, answers with its old definition"
    return state.status


def what_of(state: IndexState) -> str:
    """What there is to know beside the state."""
    return "; ".join([*state.differences, *([state.note] if state.note else [])])


COLUMNS: list[Column[IndexState]] = [
    Column("name", lambda state: state.name, "name"),
    Column("kind", lambda state: "unique" if state.unique else state.kind),
    Column("collection", lambda state: state.collection),
    Column("state", state_word),
    Column("note", what_of, "text"),
]


def state_data(state: IndexState) -> dict[str, Any]:
    """An index as plain data, its definitions as they stand."""
    plain: dict[str, Any] = msgspec.to_builtins(state)
    return plain


def conflict_columns(run: Invocation) -> Callable[[Sequence[Finding]], list[Column[Finding]]]:
    """Columns of facts that the platform would delete."""

    def columns(findings: Sequence[Finding]) -> list[Column[Finding]]:
        label = labelled(run, [finding.scope for finding in findings if finding.scope])
        return [
            Column("id", lambda finding: finding.target_id, "id"),
            Column("scope", lambda finding: label(finding.scope) if finding.scope else ""),
            Column("content", lambda finding: finding.text, "text"),
            Column("kept", lambda finding: finding.related[0], "id"),
        ]

    return columns


def conflict_data(finding: Finding) -> dict[str, Any]:
    """A fact that the platform would delete, as plain data."""
    scope = finding.scope
    return {
        "id": finding.target_id,
        "agent_id": finding.agent_id,
        "scope": scope.kind.value if scope else None,
        "user_id": scope.user_id if scope else None,
        "group_id": scope.group_id if scope else None,
        "shard": scope.shard_name if scope else None,
        "content": finding.text,
        "kept": finding.related[0],
    }


def action_data(action: IndexAction) -> dict[str, Any]:
    """What was done, and how the index is, as plain data."""
    return {"outcome": action.outcome, **state_data(action.state), "note": _note(action)}


def tell_actions(run: Invocation, actions: Sequence[IndexAction]) -> None:
    """Print what was done; indexes of no interest (ordinary ones that are there) are counted."""
    if run.out.is_data:
        run.out.objects(action_data(action) for action in actions)
        return
    quiet = [a for a in actions if a.outcome == "there" and a.state.kind == "ordinary"]
    if quiet:
        run.out.line(f"{len(quiet)} ordinary indexes are there already")
    for action in actions:
        if action in quiet:
            continue
        words = [f"{action.name}: {_OUTCOMES[action.outcome]}"]
        if action.outcome in ("made", "updated", "there") and action.state.status != "ready":
            words.append(state_word(action.state))
        run.out.safe(", ".join(words))
        note = what_of(action.state) if action.outcome == "different" else _note(action)
        if note:
            run.out.safe(f"  {note}")


def _note(action: IndexAction) -> str:
    return action.note or action.state.note


def tell_differences(run: Invocation, states: Sequence[IndexState]) -> None:
    """Show on stderr what an update would change."""
    for state in states:
        run.out.note(f"{state.name} on {state.collection}")
        for difference in state.differences or ("is made anew as it is",):
            run.out.note(f"  {difference}")


@contextmanager
def shown_waiting(run: Invocation) -> Iterator[Callable[[Sequence[IndexState]], None]]:
    """What to call with each look at indexes that are built; a pipe is told once."""
    if run.quiet or not sys.stderr.isatty():
        told: set[str] = set()

        def tell(states: Sequence[IndexState]) -> None:
            building = [s.name for s in states if s.status == "building" and s.name not in told]
            if building:
                told.update(building)
                run.out.note(f"waiting for {', '.join(building)} to be built")

        yield tell
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20))
    console = Console(stderr=True, no_color=not run.out.colored(sys.stderr))
    with Progress(
        *columns, MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("building", total=None)

        def show(states: Sequence[IndexState]) -> None:
            building = [state.name for state in states if state.status == "building"]
            progress.update(
                task,
                total=len(states),
                completed=len(states) - len(building),
                description=f"building {', '.join(building)}" if building else "built",
            )

        yield show
