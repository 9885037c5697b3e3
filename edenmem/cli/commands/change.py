"""``edenmem edit|delete|restore|undo``: change what a reference names, and take changes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import counts, key_of, note_told, print_edits
from edenmem.cli.commands.show import show_change, where
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import change_text, read_text_option, show_diff
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.prompts import Missing, ask_choice, person_is_there
from edenmem.engine.history.descriptions import action_words
from edenmem.engine.history.undo import UndoOutcome, UndoStep
from edenmem.engine.scopes.references import Target, TargetKind
from edenmem.errors import ConflictError, ExitCode, NotFoundError, UsageError
from edenmem.models.changes import AuditEntry
from edenmem.models.memory import Fact, FactFields, Reflection
from edenmem.models.search import FactFilter
from edenmem.text import ago, many, one_line

if TYPE_CHECKING:
    from edenmem.engine.edits.editor import Editor
    from edenmem.engine.reports import EditReport


_EDITED: tuple[TargetKind, ...] = ("fact", "reflection", "scope")
_DELETED: tuple[TargetKind, ...] = ("fact", "reflection")
#: Maximum number of facts to choose from.
_OFFERED = 50


def edit(
    run: Invocation,
    ref: options.Ref,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    private: Annotated[
        bool | None, typer.Option("--private/--no-private", help="Forbid or allow propagation.")
    ] = None,
    *,
    fields: options.FactFieldOptions,
    wait: options.Wait = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Edit a fact, a pending reflection, or the text of a scope, in $EDITOR or with --content.

    --key, --tag, --meta, --expires and --value change the fields of a fact. Concurrent edits
    conflict (exit 4). 'fact edit' is the same command.

    \b
    edenmem edit 65f3a0c2
    edenmem fact edit 65f3a0c2 --content "It starts at 18:00." --yes --reason new
    edenmem edit mira/user:lena --file lena.md
    """
    target = run.resolver.target(ref, _EDITED, removed=True, new_group=True)
    new = read_text_option(content, file)
    kind = target.kind
    if private is not None:
        if kind == "scope":
            raise UsageError(
                "--private does not apply to a text", hint="see 'edenmem scope policy --private'"
            )
        report = run.service.editor.set_private(target.id, private, reason=reason, dry_run=dry_run)
        print_edits(run, report)
        if new is None and not fields.are_given:
            return
    changed: FactFields | None = None
    if fields.are_given:
        if kind != "fact":
            raise UsageError("--key, --tag, --meta, --expires and --value apply only to facts")
        fact = run.service.memory.find_fact(target.id)
        changed = fields.change(fact.fields)
        if new in (None, fact.content):
            report = run.service.editor.edit(
                fact.id,
                expected_version=fact.version,
                fields=changed,
                reason=reason,
                dry_run=dry_run,
            )
            print_edits(run, report)
            return
    is_written = edit_target(
        run,
        target,
        new,
        fields=changed,
        allow_long=allow_long,
        yes=yes,
        dry_run=dry_run,
        reason=reason,
    )
    if is_written and kind == "fact":
        await_search(run, target.id, wait=wait)


def edit_target(
    run: Invocation,
    target: Target,
    new: str | None,
    *,
    fields: FactFields | None = None,
    allow_long: bool,
    yes: bool,
    dry_run: bool,
    reason: str,
) -> bool:
    """Edit a fact, reflection or text; ``new`` is the text, or None to open the editor.

    ``fields`` are the new fields of a fact, if they change with the text. Returns whether
    something was written.
    """
    scope = target.scope
    if scope is not None:
        text = run.service.memory.text(scope)
        before, version = (text.consolidated_content, text.version) if text else ("", 0)
    else:
        memory = _read(run, target)
        before, version = memory.content, memory.version

    def write(after: str, only_try: bool) -> EditReport:
        def work(editor: Editor) -> EditReport:
            change: Callable[..., EditReport] = partial(editor.edit, target.id, fields=fields)
            if scope is not None:
                change = partial(editor.edit_consolidation, scope)
            return change(
                after,
                expected_version=version,
                allow_long=allow_long,
                reason=reason,
                dry_run=only_try,
            )

        return run.edit(work, embed=target.kind == "fact" and not only_try)

    written = change_text(
        run.out,
        before,
        name=f"{scope.kind}-text" if scope else f"{target.kind}-{target.id}",
        given=new,
        yes=yes,
        dry_run=dry_run,
        write=write,
        show=partial(print_edits, run),
    )
    return written is not None


def delete(
    run: Invocation,
    refs: Annotated[
        list[str] | None, typer.Argument(metavar="[REF]…", help="IDs or ID prefixes.")
    ] = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Delete facts and reflections. 'restore' brings them back; 'forget --fact' erases facts.

    Without REF, choose a fact from a list on a terminal.

    \b
    edenmem delete 65a1f0 --dry-run
    edenmem delete 65a1f0 65b2c4 --yes --reason "said in jest"
    """
    chosen = refs or [_choose_fact(run)]
    targets = [run.resolver.target(ref, _DELETED, removed=True) for ref in chosen]
    found = [_read(run, target) for target in targets]
    run.out.notes(f"{memory.id}  {one_line(memory.content, 60)}" for memory in found)
    kinds = {target.kind for target in targets}
    words = kinds if len(kinds) == 1 else ("memory", "memories")
    run.confirm(f"Delete {many(len(found), *words)}?", yes=yes or dry_run)

    editor = run.service.editor
    reports = [
        editor.delete(memory.id, expected_version=memory.version, reason=reason, dry_run=dry_run)
        for memory in found
    ]
    print_edits(run, *reports)


def _read(run: Invocation, target: Target) -> Fact | Reflection:
    if target.kind == "fact":
        return run.service.memory.find_fact(target.id)
    return run.resolver.reflection(target.id)


def _choose_fact(run: Invocation) -> str:
    if not person_is_there():
        raise Missing("REF")
    agent = options.choose_agent(run, None)
    scopes = run.service.scopes.of_agent(agent.id, [])
    facts = run.service.memory.facts(FactFilter(scopes=scopes), limit=_OFFERED)
    choices = [(fact.id, fact.content) for fact in facts]
    if not choices:
        raise NotFoundError("no facts to delete")
    return ask_choice("fact to delete", "REF", choices)


def restore(
    run: Invocation,
    ref: options.Ref,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="Version to restore.")
    ] = None,
    wait: options.Wait = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Restore a deleted fact or reflection, or an earlier version of a fact or text.

    \b
    edenmem restore 65a1f0
    edenmem restore mira/user:lena --version 2
    """
    target = run.resolver.target(ref, _EDITED, removed=True)
    scope = target.scope
    if target.kind == "reflection":
        if version is not None:
            raise UsageError("a reflection has no versions", hint="see 'edenmem history REF'")
        removal, done = _find_removal(run, target.id), f"restored reflection {target.id}"
        undo_entry(run, removal, force=False, yes=True, dry_run=dry_run, reason=reason, done=done)
        return
    if scope is not None and version is None:
        known = ", ".join(str(each.version) for each in run.service.history.text_versions(scope))
        raise Missing("--version", hint=f"versions: {known}")

    def work(editor: Editor, *, dry_run: bool) -> EditReport:
        if scope is None:
            return editor.restore_fact(target.id, version=version, reason=reason, dry_run=dry_run)
        assert version is not None
        return editor.restore_consolidation(scope, version, reason=reason, dry_run=dry_run)

    verbs = ("restore", "restored") if scope is None else None
    tried = run.edit(partial(work, dry_run=True))
    if not run.out.is_data:
        before, after = (
            str(document.get("consolidated_content") or document.get("content") or "")
            for document in (tried.before or {}, tried.after or {})
        )
        show_diff(run.out, before, after, old="current", new="restored")
    if dry_run:
        print_edits(run, tried, verbs=verbs)
        return
    if tried.before is not None:
        run.confirm("Restore it?", yes=yes)
    print_edits(run, run.edit(partial(work, dry_run=False), embed=scope is None), verbs=verbs)
    if scope is None:
        await_search(run, target.id, wait=wait)


def _find_removal(run: Invocation, reflection_id: str) -> str:
    """Return the ID of the entry that deleted a reflection.

    Raises:
        UsageError: The reflection is not deleted.
        NotFoundError: The log has no deletion of it.
    """
    if run.service.memory.reflection(reflection_id) is not None:
        raise UsageError(f"the reflection is not deleted: {reflection_id}")
    actions = ["remove_reflection"]
    for entry in run.service.history.entries(target_id=reflection_id, actions=actions, limit=1):
        return entry.id
    raise NotFoundError(f"the log has no deletion of reflection {reflection_id}")


#: Maximum seconds to wait until search finds a fact.
_PATIENCE = 60


def await_search(run: Invocation, fact_id: str, *, wait: bool) -> None:
    """Wait until search finds the fact, or print a note about the delay.

    Exits with 1 on a timeout; the fact is stored.
    """
    if not wait:
        if run.service.indexes.follow_later:
            run.out.note("search finds it once the indexes are updated; --wait waits for that")
        return
    run.out.progress("waiting until search finds it")
    if not run.service.indexes.await_fact(fact_id, timeout=_PATIENCE):
        run.out.note(
            f"the fact is stored, but search did not find it within {_PATIENCE} seconds;"
            " see 'edenmem index list --check'"
        )
        raise typer.Exit(ExitCode.SOME_FAILED)


# -- undo ----------------------------------------------------------------------------------------

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
    options.exclusive({"ENTRY": entry, "--run": run_id, "--last": last})
    if last:
        run_id, entry = _latest(run)
    if entry is not None:
        try:
            found = run.resolver.logged_id("entry", entry)
            undo_entry(run, found, force=force, yes=yes, dry_run=dry_run, reason=reason)
        except NotFoundError as error:
            with suppress(NotFoundError):
                run.resolver.logged_id("target", entry)
                error.hint = f"it names a memory; list its changes: edenmem log --target {entry}"
            raise
    elif run_id is not None:
        whole = run.resolver.logged_id("run", run_id)
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
    run: Invocation,
    entry_id: str,
    *,
    force: bool,
    yes: bool,
    dry_run: bool,
    reason: str = "",
    done: str = "",
) -> None:
    """Show what undoing an entry changes, confirm, and undo it; ``done`` is the message.

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
        out.line(done or f"undone; to redo: edenmem undo {step.undo_id}")
        if done:
            out.note(f"to undo: edenmem undo {step.undo_id}")


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
