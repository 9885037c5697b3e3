"""Views of changes: as rows of the log, as fields, and as diffs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import iso
from edenmem.engine.history.descriptions import action_words, document_lines, summarize_entry
from edenmem.models.changes import AuditEntry

#: Minimum width for the columns of commands and runs.
_WIDE = 130


def show_change(
    run: Invocation,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    to_stdout: bool,
    old: str = "before",
    new: str = "after",
) -> None:
    """Print a change of a document as a diff, colored on a terminal."""
    then, now = ("\n".join(document_lines(each)) for each in (before, after))
    show_diff(run.out, then, now, old=old, new=new, to_stdout=to_stdout)


def where(run: Invocation, entries: Sequence[AuditEntry]) -> Callable[[AuditEntry], str]:
    """Return a function from an entry to its owner: ``mira: user lena``."""
    scopes = [entry.scope for entry in entries if entry.scope is not None]
    agents = [entry.agent_id for entry in entries if entry.agent_id]
    labels = run.service.scopes.labels([*scopes, *agents])

    def place(entry: AuditEntry) -> str:
        return labels[entry.agent_id] if entry.scope is None else labels.full(entry.scope)

    return place


def log_columns(
    run: Invocation,
) -> Callable[[Sequence[AuditEntry]], list[Column[AuditEntry]]]:
    """Return the columns of a list of changes."""

    def columns(entries: Sequence[AuditEntry]) -> list[Column[AuditEntry]]:
        place = where(run, entries)
        shown: list[Column[AuditEntry]] = [
            Column("id", lambda entry: entry.id, "id"),
            Column("when", lambda entry: entry.at, "time"),
            Column("who", lambda entry: entry.actor.name),
            Column("what", action_words),
            Column("where", place),
            Column("content", summarize_entry, "text"),
        ]
        if run.out.room >= _WIDE:  # values for 'undo --run' and --command
            shown[3:3] = [
                Column("command", _command),
                Column("run", lambda entry: entry.actor.run_id, "id"),
            ]
        return shown

    return columns


def _command(entry: AuditEntry) -> str:
    """Return the words of the command without its options."""
    words = entry.actor.command.removeprefix("edenmem ").split()
    return " ".join(takewhile(lambda word: word.isalnum(), words))


def entry_fields(run: Invocation, entry: AuditEntry, undone_by: str) -> list[tuple[str, object]]:
    """Return the fields of an entry, without its change."""
    actor = entry.actor
    return [
        ("entry", entry.id),
        ("when", iso(entry.at)),
        ("who", f"{actor.name} on {actor.host}"),
        ("command", actor.command),
        ("run", actor.run_id),
        ("what", f"{action_words(entry)} {entry.target_id}"),
        ("where", where(run, [entry])(entry)),
        ("why", entry.reason),
        ("undoes", entry.undoes),
        ("undone by", undone_by),
        ("status", entry.status if entry.status != "done" else ""),
    ]
