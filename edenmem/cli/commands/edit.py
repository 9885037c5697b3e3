"""``edenmem edit|delete|restore``: change what a reference names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.views import print_edits
from edenmem.cli.commands.undo import undo_entry
from edenmem.cli.terminal.editing import change_text, read_text_option, show_diff
from edenmem.cli.terminal.prompts import Missing, ask_choice, person_is_there
from edenmem.engine.scopes.references import Target, TargetKind
from edenmem.errors import ExitCode, NotFoundError, UsageError
from edenmem.models.memory import Fact, FactFields, Reflection
from edenmem.models.search import FactFilter
from edenmem.text import many, one_line

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
        assert kind == "fact" or kind == "reflection"
        report = run.edit(
            lambda editor: editor.set_private(
                kind, target.id, private, reason=reason, dry_run=dry_run
            )
        )
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
            report = run.edit(
                lambda editor: editor.edit_fact(
                    fact.id,
                    expected_version=fact.version,
                    fields=changed,
                    reason=reason,
                    dry_run=dry_run,
                )
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
            change: Callable[..., EditReport] = partial(editor.edit_reflection, target.id)
            if scope is not None:
                change = partial(editor.edit_consolidation, scope)
            elif target.kind == "fact":
                change = partial(editor.edit_fact, target.id, fields=fields)
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
    if not dry_run:
        run.confirm(f"Delete {many(len(found), *words)}?", yes=yes)

    def work(editor: Editor) -> list[EditReport]:
        return [
            (editor.delete_fact if target.kind == "fact" else editor.delete_reflection)(
                memory.id, expected_version=memory.version, reason=reason, dry_run=dry_run
            )
            for target, memory in zip(targets, found, strict=True)
        ]

    print_edits(run, *run.edit(work))


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
    if target.kind == "reflection":
        if version is not None:
            raise UsageError("a reflection has no versions", hint="see 'edenmem history REF'")
        undo_entry(run, _removal(run, target.id), force=False, yes=yes, dry_run=dry_run)
        return
    scope = target.scope
    if scope is not None and version is None:
        known = [str(each.version) for each in run.service.history.text_versions(scope)]
        raise Missing("--version", hint=f"versions: {', '.join(known)}")

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


def _removal(run: Invocation, reflection_id: str) -> str:
    """Return the ID of the entry that deleted a reflection.

    Raises:
        UsageError: The reflection is not deleted.
    """
    if run.service.memory.reflection(reflection_id) is not None:
        raise UsageError(f"the reflection is not deleted: {reflection_id}")
    entries = run.service.history.entries(
        target_id=reflection_id, actions=["remove_reflection"], limit=1
    )
    for entry in entries:
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
