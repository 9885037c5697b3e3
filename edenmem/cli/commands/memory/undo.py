"""``edenmem undo``: undo one change, or all changes of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.told import key_of, note_told
from edenmem.cli.commands.memory.log import show_change, where
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import Missing, confirm
from edenmem.cli.terminal.times import ago
from edenmem.engine.history.descriptions import action_words
from edenmem.engine.history.undo import UndoOutcome, UndoStep
from edenmem.errors import ConflictError, ExitCode, NotFoundError, UsageError
from edenmem.models.changes import AuditEntry
from edenmem.text import one_line

#: Maximum number of planned entries to show.
_SHOWN = 10
#: Maximum number of entries that --last looks at.
_SEARCHED = 1000


def undo(
    ctx: typer.Context,
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

    run = invocation(ctx)
    if (entry is not None) + (run_id is not None) + last > 1:
        raise UsageError("ENTRY, --run and --last exclude each other")
    if last:
        run_id, entry = _latest(run)
    if entry is not None:
        found = run.service.history.find_id("entry", entry)
        undo_entry(run, found, force=force, yes=yes, dry_run=dry_run, reason=reason)
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
    plan = run.service.undo.plan(entry_id, force=force)
    if plan.outcome is UndoOutcome.REFUSED:
        _refuse(run, plan)
    if plan.outcome is UndoOutcome.ALREADY:
        run.out.note(f"nothing to do: {plan.why}")
        _data(run, plan)
        return
    if not (run.out.is_data and (yes or dry_run)):
        _print_plan(run, plan, to_stdout=dry_run and not run.out.is_data)
    note_told(run, [_told_key(plan)])
    if dry_run:
        _data(run, plan)
        return
    if not confirm("Undo this?", yes=yes):
        run.out.note("nothing was changed")
        return
    step = run.service.undo.entry(entry_id, force=force, reason=reason)
    if step.outcome is UndoOutcome.REFUSED:
        _refuse(run, step)
    _make_vectors(run)
    run.out.report(
        [step],
        lambda: run.out.line(f"undone; to redo: edenmem undo {step.undo_id}"),
        data=_step_data,
    )


def _print_plan(run: Invocation, step: UndoStep, *, to_stdout: bool) -> None:
    tell = run.out.safe if to_stdout else run.out.note
    tell(_line(run, step.of or step.entry))
    if step.forced:
        tell(f"{step.why or 'changed since'}; the current state stays in history")
        for line in _in_the_way(run, step):
            tell(line)
    for notice in step.notices:
        tell(notice)
    show_change(run, step.before, step.after, to_stdout=to_stdout, old="now", new="then")


def _refuse(run: Invocation, step: UndoStep) -> None:
    for line in _in_the_way(run, step):
        run.out.note(line)
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
        yield f"  {_line(run, each)}"
    if step.more:
        yield f"  and {step.more} more: edenmem log --target {step.entry.target_id}"


def _line(run: Invocation, entry: AuditEntry) -> str:
    place = where(run, [entry])(entry)
    parts = (entry.id, ago(entry.at), entry.actor.name, action_words(entry), place)
    return one_line(" · ".join(filter(None, parts)))


# -- a run ---------------------------------------------------------------------------------------


def undo_run(
    run: Invocation, run_id: str, *, force: bool, yes: bool, dry_run: bool, reason: str
) -> None:
    """Show the plan of undoing a run, confirm, and undo all of its changes."""

    def take_back(*, dry_run: bool = False) -> Iterator[UndoStep]:
        return run.service.undo.run(run_id, force=force, dry_run=dry_run, reason=reason)

    planned, done = _Tally(), _Tally()
    if dry_run:
        found = planned.count(take_back(dry_run=True))

        def show_plan() -> None:
            _print_all(run, run_id, found, planned, to_stdout=True)
            if not planned.is_all_done:
                _print_force(run, run_id, planned, force)

        run.out.report(found, show_plan, data=_step_data)
        note_told(run, planned.keys)
        planned.exit_if_refused()
        return
    if not yes:
        _print_all(run, run_id, planned.count(take_back(dry_run=True)), planned, to_stdout=False)
        if planned.is_all_done:
            done.count_all(take_back())  # updates the ledger
            return
    if not confirm(f"Undo all changes of run {run_id}?", yes=yes):
        run.out.note("nothing was changed")
        return
    found = _with_vectors(run, done.count(take_back()))

    def show() -> None:
        for line in _lines(run, found, "undoing"):
            run.out.safe(line)
        run.out.line(done.words)
        if done.outcomes[UndoOutcome.DONE]:
            run.out.note(f"to redo: edenmem undo --run {run.actor.run_id}")
        _print_force(run, run_id, done, force)
        _print_migration(run, run_id)

    run.out.report(found, show, data=_step_data)
    note_told(run, done.keys)
    done.exit_if_refused()


class _Tally:
    """Counts of undo steps by outcome."""

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

    def count_all(self, found: Iterator[UndoStep]) -> None:
        """Count all steps."""
        for _ in self.count(found):
            pass

    @property
    def is_all_done(self) -> bool:
        """Return whether all changes of the run are undone."""
        return self.outcomes.total() == self.outcomes[UndoOutcome.ALREADY]

    @property
    def words(self) -> str:
        """Return the number of steps for each outcome."""
        counts = self.outcomes
        parts = (f"{counts[outcome]} {outcome.value}" for outcome in UndoOutcome if counts[outcome])
        return ", ".join(parts) or "nothing to undo"

    def exit_if_refused(self) -> None:
        """Exit with 1 if a step was refused."""
        if self.outcomes[UndoOutcome.REFUSED]:
            raise typer.Exit(ExitCode.SOME_FAILED)


def _print_all(
    run: Invocation, run_id: str, found: Iterator[UndoStep], planned: _Tally, *, to_stdout: bool
) -> None:
    """Print the plan for a run."""
    tell = run.out.safe if to_stdout else run.out.note
    for line in _lines(run, found, "planning", shown=_SHOWN):
        tell(line)
    if planned.outcomes.total() > _SHOWN:
        tell(f"and more: edenmem log --run {run_id}")
    if planned.is_all_done:
        run.out.note("nothing to do: the run is already undone")
    else:
        tell(f"would be: {planned.words}")


def _lines(run: Invocation, found: Iterator[UndoStep], what: str, *, shown: int = 0) -> list[str]:
    """Take all steps; describe the first ``shown`` ones and the refused ones."""
    lines = []
    with show_progress(run.out) as progress:
        for number, step in enumerate(found):
            if number < shown or step.outcome is UndoOutcome.REFUSED:
                lines.append(_describe_step(run, step))
            progress.step(what, number + 1, 0)
    return lines


def _print_force(run: Invocation, run_id: str, counts: _Tally, force: bool) -> None:
    if counts.forceable and not force:
        run.out.note(f"to undo later changes as well: edenmem undo --run {run_id} --force")


def _print_migration(run: Invocation, run_id: str) -> None:
    found = run.service.undo.migration_of(run_id)
    if found is not None:
        state = found.state.value.replace("_", " ")
        run.out.note(f"state of migration {found.id}: {state}")


def _describe_step(run: Invocation, step: UndoStep) -> str:
    line = f"{step.outcome.value:<8} {_line(run, step.entry)}"
    return f"{line}: {step.why}" if step.why else line


def _told_key(step: UndoStep) -> str:
    entry = step.of or step.entry
    return key_of(entry.target_type, entry.target_id, entry.scope)


# -- shared --------------------------------------------------------------------------------------


def _data(run: Invocation, step: UndoStep) -> None:
    run.out.report([step], lambda: None, data=_step_data)


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


def _with_vectors(run: Invocation, found: Iterator[UndoStep]) -> Iterator[UndoStep]:
    """Yield the steps, then embed restored facts that lack a vector."""
    yield from found
    _make_vectors(run)


def _make_vectors(run: Invocation) -> None:
    if missing := run.service.undo.missing:
        notice = run.serve(lambda service: service.undo.make_vectors(missing))
        if notice:
            run.out.note(notice)
