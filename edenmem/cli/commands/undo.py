"""``edenmem undo``: undo one change, or all changes of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import counts, key_of, note_told
from edenmem.cli.commands.log import show_change, where
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.prompts import Missing
from edenmem.engine.history.descriptions import action_words
from edenmem.engine.history.undo import UndoOutcome, UndoStep
from edenmem.errors import ConflictError, NotFoundError, UsageError
from edenmem.models.changes import AuditEntry
from edenmem.text import ago, one_line

#: Maximum number of planned entries to show.
_SHOWN = 10
#: Maximum number of entries that --last looks at.
_SEARCHED = 1000


def undo(
    run: Invocation,
    entry: Annotated[
        str | None,
        typer.Argument(metavar="[ENTRY]", help="Log entry: ID or ID prefix."),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Undo all changes of this run of a command."),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Undo your latest run of a command that changed memory.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also overwrite later changes, which stay in history."),
    ] = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Undo a change, or all changes of a run, newest first.

    Later changes of the same memory are kept, and block the undo unless --force is given. An undo
    is itself a change that can be undone.

    \b
    edenmem undo --last
    edenmem undo 65f3a1b2 --dry-run
    edenmem undo --run 65f3a1b2 --yes
    """
    if (entry is not None) + (run_id is not None) + last > 1:
        raise UsageError("ENTRY, --run and --last exclude each other")
    if last:
        run_id, entry = _latest(run)
    if entry is not None:
        try:
            found = run.service.history.find_id("entry", entry)
            undo_entry(run, found, force=force, yes=yes, dry_run=dry_run, reason=reason)
        except NotFoundError as error:
            with suppress(NotFoundError):
                run.service.history.find_id("target", entry)
                error.hint = f"it names a memory; list its changes: edenmem log --target {entry}"
            raise
    elif run_id is not None:
        whole = run.service.history.find_id("run", run_id)
        undo_run(run, whole, force=force, yes=yes, dry_run=dry_run, reason=reason)
    else:
        raise Missing("ENTRY, --run or --last", hint="list entries: edenmem log")


def _latest(run: Invocation) -> tuple[str | None, str | None]:
    """Return the latest run of this user that is not undone, or its only entry.

    Raises:
        NotFoundError: The log has no such run.
    """
    for newest in run.service.history.entries(actor=run.actor.name, limit=_SEARCHED):
        if newest.undoes or run.service.history.undone_by(newest):
            continue
        run_id = newest.actor.run_id
        entries = list(run.service.history.entries(run_id=run_id, limit=2))
        return (run_id, None) if len(entries) > 1 else (None, newest.id)
    raise NotFoundError(
        f"no change by {run.actor.name} to undo", hint="list all changes: edenmem log"
    )


# -- one entry -----------------------------------------------------------------------------------


def undo_entry(
    run: Invocation, entry_id: str, *, force: bool, yes: bool, dry_run: bool, reason: str = ""
) -> None:
    """Show what undoing an entry changes, confirm, and undo it.

    Raises:
        ConflictError: Later changes prevent it.
    """
    out = run.out
    plan = _check(run, run.service.undo.plan(entry_id, force=force))
    if plan.outcome is UndoOutcome.ALREADY:
        out.note(f"nothing to do: {plan.why}")
        out.data([plan], _step_data)
        return
    if not (out.is_data and (yes or dry_run)):
        to_stdout = dry_run and not out.is_data
        tell = out.safe if to_stdout else out.note
        tell(_describe_entry(run, plan.of or plan.entry))
        if plan.forced:
            tell(f"{plan.why or 'changed since'}; the current state stays in history")
        for line in [*(_in_the_way(run, plan) if plan.forced else ()), *plan.notices]:
            tell(line)
        show_change(run, plan.before, plan.after, to_stdout=to_stdout, old="now", new="then")
    note_told(run, [_told_key(plan)])
    if dry_run:
        out.data([plan], _step_data)
        return
    run.confirm("Undo this?", yes=yes)
    step = _check(run, run.service.undo.entry(entry_id, force=force, reason=reason))
    _make_vectors(run)
    if not out.data([step], _step_data):
        out.line(f"undone; to redo: edenmem undo {step.undo_id}")


def _check(run: Invocation, step: UndoStep) -> UndoStep:
    """Return a step that is not refused.

    Raises:
        ConflictError: It is; the hint says what to do.
    """
    if step.outcome is not UndoOutcome.REFUSED:
        return step
    run.out.notes(_in_the_way(run, step))
    if step.forceable:
        hint = f"undo the later change first, or force: edenmem undo {step.entry.id} --force"
    elif step.in_the_way:
        hint = f"undo the later change first: edenmem undo {step.in_the_way[0].id}"
    else:
        hint = f"see 'edenmem show {step.entry.id}'"
    raise ConflictError(f"cannot undo {step.entry.id}: {step.why}", hint=hint)


def _in_the_way(run: Invocation, step: UndoStep) -> Iterator[str]:
    if step.in_the_way:
        yield "later changes:"
    for each in step.in_the_way:
        yield f"  {_describe_entry(run, each)}"
    if step.more:
        yield f"  and {step.more} more: edenmem log --target {step.entry.target_id}"


def _describe_entry(run: Invocation, entry: AuditEntry) -> str:
    parts = (entry.id, ago(entry.at), entry.actor.name, action_words(entry), where(run, entry))
    return one_line(" · ".join(filter(None, parts)))


# -- a run ---------------------------------------------------------------------------------------


def undo_run(
    run: Invocation, run_id: str, *, force: bool, yes: bool, dry_run: bool, reason: str
) -> None:
    """Show the plan of undoing a run, confirm, and undo all of its changes."""
    out = run.out
    planned, done = _Counts(), _Counts()

    def steps(counts: _Counts, *, dry_run: bool = False) -> Iterator[UndoStep]:
        undo = run.service.undo
        yield from counts.count(undo.run(run_id, force=force, dry_run=dry_run, reason=reason))
        if not dry_run:
            _make_vectors(run)

    def note_force(counts: _Counts) -> None:
        if counts.forceable and not force:
            out.note(f"to undo later changes as well: edenmem undo --run {run_id} --force")

    if dry_run or not yes:
        found = steps(planned, dry_run=True)
        if not (dry_run and out.data(found, _step_data)):
            tell = out.safe if dry_run else out.note
            for line in _describe_steps(run, found, "planning", shown=_SHOWN):
                tell(line)
            if planned.outcomes.total() > _SHOWN:
                tell(f"and more: edenmem log --run {run_id}")
            if planned.is_all_done:
                out.note("nothing to do: the run is already undone")
            else:
                tell(f"would be: {planned.words}")
        if dry_run:
            note_force(planned)
            note_told(run, planned.keys)
            end_if(planned.outcomes[UndoOutcome.REFUSED])
            return
        if planned.is_all_done:
            for _ in steps(done):  # updates the ledger of migrations
                pass
            return
    run.confirm(f"Undo all changes of run {run_id}?", yes=yes)
    found = steps(done)
    if not out.data(found, _step_data):
        for line in _describe_steps(run, found, "undoing"):
            out.safe(line)
        out.line(done.words)
        if done.outcomes[UndoOutcome.DONE]:
            out.note(f"to redo: edenmem undo --run {run.actor.run_id}")
        note_force(done)
        if migration := run.service.undo.migration_of(run_id):
            state = migration.state.value.replace("_", " ")
            out.note(f"state of migration {migration.id}: {state}")
    note_told(run, done.keys)
    end_if(done.outcomes[UndoOutcome.REFUSED])


class _Counts:
    """Counts of undo steps by outcome, and the keys of undone memory in the notes of replies."""

    def __init__(self) -> None:
        self.outcomes = Counter[UndoOutcome]()
        self.forceable = 0
        self.keys: dict[str, None] = {}

    def count(self, found: Iterator[UndoStep]) -> Iterator[UndoStep]:
        """Count the steps while yielding them."""
        for step in found:
            self.outcomes[step.outcome] += 1
            self.forceable += step.forceable
            if step.outcome is UndoOutcome.DONE:
                self.keys[_told_key(step)] = None
            yield step

    @property
    def is_all_done(self) -> bool:
        """Return whether all changes of the run are undone."""
        return self.outcomes.total() == self.outcomes[UndoOutcome.ALREADY]

    @property
    def words(self) -> str:
        """Return the number of steps for each outcome."""
        found = ((self.outcomes[outcome], outcome.value) for outcome in UndoOutcome)
        return counts(*found) or "nothing to undo"


def _describe_steps(
    run: Invocation, found: Iterator[UndoStep], what: str, *, shown: int = 0
) -> list[str]:
    """Take all steps; describe the first ``shown`` ones and the refused ones."""
    lines = []
    with show_progress(run.out) as progress:
        for number, step in enumerate(found):
            if number < shown or step.outcome is UndoOutcome.REFUSED:
                line = f"{step.outcome.value:<8} {_describe_entry(run, step.entry)}"
                lines.append(f"{line}: {step.why}" if step.why else line)
            progress.step(what, number + 1, 0)
    return lines


# -- shared --------------------------------------------------------------------------------------


def _told_key(step: UndoStep) -> str:
    entry = step.of or step.entry
    return key_of(entry.target_type, entry.target_id, entry.scope)


def _step_data(step: UndoStep) -> dict[str, Any]:
    return {
        "entry": step.entry.id,
        "outcome": step.outcome.value,
        "undo_id": step.undo_id,
        "action": step.entry.action,
        "target_type": step.entry.target_type,
        "target_id": step.entry.target_id,
        "before": step.before,
        "after": step.after,
        "why": step.why,
        "in_the_way": [to_data(each) for each in step.in_the_way],
        "more_in_the_way": step.more,
        "forced": step.forced,
        "notices": list(step.notices),
    }


def _make_vectors(run: Invocation) -> None:
    if missing := run.service.undo.missing:
        notice = run.serve(lambda service: service.undo.make_vectors(missing))
        if notice:
            run.out.note(notice)
