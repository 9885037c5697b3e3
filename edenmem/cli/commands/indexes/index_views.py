"""Views of indexes: states, progress and actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.output import OutputFormat
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.tables import Column
from edenmem.models.indexes import INDEX_STEP, IndexState
from edenmem.models.integrity import Finding

if TYPE_CHECKING:
    from edenmem.engine.indexes.manager import IndexAction

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


def state_word(state: IndexState) -> str:
    """Return the label of a state."""
    if state.status == "building" and state.queryable:
        return "building, still answers with the old definition"
    return "not needed" if state.status == "unwanted" else state.status


def what_of(state: IndexState) -> str:
    """Return the differences and the note of an index."""
    return "; ".join([*state.differences, *([state.note] if state.note else [])])


_COLUMNS: list[Column[IndexState]] = [
    Column("name", lambda state: state.name, "name"),
    Column("kind", lambda state: "unique" if state.unique else state.kind),
    Column("collection", lambda state: state.collection),
    Column("state", lambda state: "not needed" if state.status == "unwanted" else state.status),
]
_WITH_NOTES: list[Column[IndexState]] = [
    *_COLUMNS,
    Column("note", lambda state: _list_note(state), "text"),
]


def print_states(run: Invocation, states: Sequence[IndexState]) -> None:
    """Print indexes, with their notes below the table."""
    if run.out.is_data or run.out.format is OutputFormat.MARKDOWN:
        run.out.listing(states, _WITH_NOTES, data=state_data)
        return
    run.out.listing(states, _COLUMNS)
    notes: dict[str, list[str]] = {}
    for state in states:
        if note := _list_note(state):
            notes.setdefault(note, []).append(state.name)
    if notes:
        run.out.line()
    for note, names in notes.items():
        run.out.paragraph("", f"{', '.join(names)}: {note}", indent=2)


def _list_note(state: IndexState) -> str:
    word = state_word(state)
    return "; ".join(filter(None, (word if word != state.status else "", what_of(state))))


def state_data(state: IndexState) -> dict[str, Any]:
    """Return an index as data, with unchanged definitions."""
    plain: dict[str, Any] = msgspec.to_builtins(state)
    return plain


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
        summary.append(f"{count} {'index' if count == 1 else 'indexes'}: {by_collection}")
    return summary


def conflict_columns(run: Invocation) -> Callable[[Sequence[Finding]], list[Column[Finding]]]:
    """Return the columns of facts that the platform would delete."""

    def columns(findings: Sequence[Finding]) -> list[Column[Finding]]:
        label = run.service.scopes.labels(
            [finding.scope for finding in findings if finding.scope]
        ).within_agent
        return [
            Column("id", lambda finding: finding.target_id, "id"),
            Column("scope", lambda finding: label(finding.scope) if finding.scope else ""),
            Column("content", lambda finding: finding.text, "text"),
            Column("kept", lambda finding: finding.related[0], "id"),
        ]

    return columns


def conflict_data(finding: Finding) -> dict[str, Any]:
    """Return a fact that the platform would delete, as data."""
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
    """Return an action and the state of its index, as data."""
    return {"outcome": action.outcome, **state_data(action.state), "note": _note(action)}


def print_actions(run: Invocation, actions: Sequence[IndexAction]) -> None:
    """Print actions; existing ordinary indexes are only counted."""
    run.out.report(actions, lambda: _show_actions(run, actions), data=action_data)


def _show_actions(run: Invocation, actions: Sequence[IndexAction]) -> None:
    quiet = [a for a in actions if a.outcome == "there" and a.state.kind == "ordinary"]
    if quiet:
        run.out.line(f"ordinary indexes that exist: {len(quiet)}")
    for action in actions:
        if action in quiet:
            continue
        words = [f"{action.name}: {_OUTCOMES[action.outcome]}"]
        if action.outcome == "would_replace":
            words[0] += f": {action.note}"
            run.out.paragraph("", words[0], indent=2)
            continue
        if action.outcome in ("made", "updated", "there") and action.state.status != "ready":
            words.append(state_word(action.state))
        run.out.safe(", ".join(words))
        note = what_of(action.state) if action.outcome == "different" else _note(action)
        if note:
            run.out.paragraph("  ", note)


def _note(action: IndexAction) -> str:
    return action.note or action.state.note


def print_differences(run: Invocation, states: Sequence[IndexState]) -> None:
    """Print on stderr what an update would change."""
    for state in states:
        run.out.note(f"{state.name} on {state.collection}")
        for difference in state.differences or ("will be rebuilt",):
            run.out.note(f"  {difference}")


@contextmanager
def show_waiting(run: Invocation) -> Iterator[Callable[[Sequence[IndexState]], None]]:
    """Yield a function that shows the progress of indexes; a pipe gets one note."""
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

        yield report
