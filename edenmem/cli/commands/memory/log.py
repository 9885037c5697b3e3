"""``edenmem log``: who changed what, when, how and why."""

from __future__ import annotations

import functools
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of, choose_scope
from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.parameters import suggest
from edenmem.cli.commands.memory.change_views import (
    entry_fields,
    log_columns,
    show_change,
    where,
)
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import OutputFormat
from edenmem.cli.terminal.times import iso
from edenmem.engine.history.descriptions import ACTIONS, action_words, summarise_entry
from edenmem.errors import ExitCode, UsageError
from edenmem.models.changes import AuditEntry
from edenmem.models.ids import utc_now
from edenmem.text import one_line

app = single()

#: Seconds between two looks of --follow, and how late an entry may appear.
_INTERVAL = 1.0
_LATE = timedelta(minutes=2)
#: Characters of what an entry is about, in a line of --follow.
_SAYS = 200


@app.command(cls=Command)
def log(
    ctx: typer.Context,
    entry: Annotated[
        str | None,
        typer.Argument(metavar="[ENTRY]", help="One entry in full: its id or the beginning of it."),
    ] = None,
    *,
    named: options.OneScope,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="ID", help="Only of this fact, reflection or other thing."
        ),
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Only by this person or worker.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command", metavar="WORDS", help="Only by commands that begin so: 'fact edit'."
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only in this run of a command.")
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option(
            "--action", metavar="KIND", help="Only this kind: revise_fact; may be repeated."
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new changes, until Ctrl-C.")
    ] = False,
    diff: Annotated[
        bool | None, typer.Option("--diff/--no-diff", help="Show each change as a diff, or none.")
    ] = None,
) -> None:
    """Show what changed memory, newest first; or one entry, with what it changed.

    \b
    edenmem log --agent mira --user lena --since 7d
    edenmem log --target 65f3a1 --diff
    edenmem log --agent mira --follow
    edenmem log 65f3a1b2
    """
    run = invocation(ctx)
    if entry is not None:
        _show(run, run.service.history.entry(entry), diff is not False)
        return
    begin, end = options.period(since, until)
    one_scope = any((named.kind, named.user, named.group, named.shard, named.session))
    scope = choose_scope(run, named) if one_scope else None
    read = functools.partial(
        run.service.history.entries,
        agent_id=agent_id_of(run, named.agent) if scope is None else None,
        scope=scope,
        target_id=_id(run, "target", target),
        run_id=_id(run, "run", run_id),
        actor=actor,
        command=command,
        actions=_parse_actions(action or ()),
        until=end,
    )
    if follow:
        run.refuse_output_file("--follow does not end")
        if run.out.format is OutputFormat.JSON:  # a list that never ends is no JSON
            run.out.format = OutputFormat.JSONL
        if run.out.format not in (OutputFormat.TABLE, OutputFormat.JSONL):
            raise UsageError(f"--follow has no --format {run.out.format}", hint="use jsonl")
        try:
            _follow(run, read, begin, limit, diff is True)
        except KeyboardInterrupt:  # the way to end it
            raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    entries = read(since=begin, limit=options.fetch(limit))
    if diff and not run.out.is_data:
        _story(run, entries, limit)
        return
    run.out.listing(
        entries, log_columns(run), limit=limit, empty="nothing was changed", header=AuditEntry
    )


def _parse_actions(given: Sequence[str]) -> list[str]:
    """Return the kinds of change that ``--action`` names.

    Raises:
        UsageError: A kind is unknown.
    """
    words = [re.sub(r"[ -]", "_", each.strip().lower()) for each in given]
    # The table calls a consolidation a text.
    actions = [re.sub("_text$", "_consolidation", each) for each in words]
    for text, action in zip(given, actions, strict=True):
        if action not in ACTIONS:
            raise UsageError(
                f"--action: no such kind of change: {text!r}",
                hint=suggest(action, ACTIONS) or f"one of {', '.join(ACTIONS)}",
            )
    return actions


def _follow(
    run: Invocation,
    read: Callable[..., Iterator[AuditEntry]],
    begin: datetime | None,
    limit: int,
    diff: bool,
) -> None:
    """Print the latest changes, oldest first, then each new one as it appears.

    An entry has the time of its change, and another process may commit it a moment later than an
    entry of a later time; so each look goes back further than the last entry, and what was printed
    is left out.
    """
    printed = {entry.id for entry in _recent(read, begin)}
    fresh = list(read(since=begin, limit=limit or None))
    while True:
        for entry in reversed(fresh):
            _print_line(run, entry, diff)
        sys.stdout.flush()
        printed |= {entry.id for entry in fresh}
        time.sleep(_INTERVAL)
        recent = _recent(read, begin)
        fresh = [entry for entry in recent if entry.id not in printed]
        printed &= {entry.id for entry in recent}


def _recent(read: Callable[..., Iterator[AuditEntry]], begin: datetime | None) -> list[AuditEntry]:
    since = utc_now() - _LATE
    return list(read(since=max(since, begin) if begin else since, limit=None))


def _print_line(run: Invocation, entry: AuditEntry, diff: bool) -> None:
    if run.out.is_data:
        run.out.listing([entry], (), header=AuditEntry)
    elif diff:
        _show(run, entry, diff=True)
        run.out.line()
    else:
        place = where(run, [entry])(entry)
        parts = (iso(entry.at), entry.id, entry.actor.name, action_words(entry), place)
        says = one_line(summarise_entry(entry), _SAYS)
        run.out.safe(one_line(" · ".join(filter(None, (*parts, says)))))


def _story(run: Invocation, entries: Iterator[AuditEntry], limit: int) -> None:
    """Entries in full, one below the other."""
    for number, each in enumerate(entries):
        if limit and number == limit:
            run.out.note(f"only the first {limit} are shown; --limit 0 shows all")
            return
        if number:
            run.out.line()
        _show(run, each, diff=True)


def _show(run: Invocation, entry: AuditEntry, diff: bool) -> None:
    undone_by = run.service.history.undone_by(entry)

    def show() -> None:
        run.out.fields(entry_fields(run, entry, undone_by or ""))
        if diff:
            show_change(run, entry.before, entry.after, to_stdout=True)

    run.out.one(entry, show, data=lambda one: to_data(one) | {"undone_by": undone_by})


def _id(run: Invocation, key: Any, text: str | None) -> str | None:
    return None if text is None else run.service.history.find_id(key, text)
