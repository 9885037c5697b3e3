"""``edenmem consolidation``: the consolidated text of each scope, always in the prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_scope, choose_scopes
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.views import (
    HISTORY,
    agent_name,
    consolidation_columns,
    print_edit,
    scope_name,
)
from edenmem.cli.commands.memory.why import text_why
from edenmem.cli.terminal.editing import change_text, read_text_option, show_diff
from edenmem.cli.terminal.prompts import confirm
from edenmem.engine.reports import EditReport
from edenmem.errors import NotFoundError
from edenmem.models.memory import Consolidation
from edenmem.text import word_count

app = group("Show, edit, compare, restore and explain consolidated texts.")

_Version = Annotated[int, typer.Option("--version", min=1, metavar="N", help="Version to restore.")]


@app.command("list", cls=Command)
def list_texts(
    ctx: typer.Context,
    named: options.Scopes,
    limit: options.Limit = 50,
) -> None:
    """List consolidated texts.

    \b
    edenmem consolidation list --agent mira
    """
    run = invocation(ctx)
    run.out.listing(
        run.service.memory.texts(**choose_scopes(run, named)),
        consolidation_columns(run),
        limit=limit,
        empty="no texts yet",
        header=Consolidation,
    )


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    named: options.OneScope,
) -> None:
    """Show the text of a scope.

    \b
    edenmem consolidation show --agent mira --user lena
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    text = run.service.memory.text(scope)
    if text is None:
        raise NotFoundError(
            f"{scope_name(run, scope)} has no text yet",
            hint="create one with 'edenmem consolidate'",
        )
    run.out.record(
        text,
        [
            ("agent", agent_name(run, scope.agent_id)),
            ("scope", scope_name(run, scope, within_agent=True)),
            ("version", text.version or "no text yet"),
            ("words", f"{word_count(text.consolidated_content)} of {text.word_limit}"),
            ("pending", len(text.unabsorbed_ids)),
            ("consolidated", text.last_consolidated_at),
            ("updated", text.updated_at),
            *(("fixed", f"{each.text} ({each.by})") for each in text.fixed),
        ],
        text=text.consolidated_content,
    )


@app.command("edit", cls=Command)
def edit(
    ctx: typer.Context,
    named: options.OneScope,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Edit or create the text of a scope, in $EDITOR or with --content.

    \b
    edenmem consolidation edit --agent mira --user lena
    edenmem consolidation edit --agent mira --file mira.md --yes
    """
    run = invocation(ctx)
    new = read_text_option(content, file)
    scope = choose_scope(run, named, new_group=True)
    stored = run.service.memory.text(scope)

    def write(text: str, only_try: bool) -> EditReport:
        return run.edit(
            lambda editor: editor.edit_consolidation(
                scope,
                text,
                expected_version=stored.version if stored else 0,
                allow_long=allow_long,
                reason=reason,
                dry_run=only_try,
            )
        )

    change_text(
        run.out,
        stored.consolidated_content if stored else "",
        name=f"{scope.kind}-text",
        given=new,
        yes=yes,
        dry_run=dry_run,
        write=write,
        show=lambda report: print_edit(run, report),
    )


@app.command("history", cls=Command)
def history(
    ctx: typer.Context,
    named: options.OneScope,
) -> None:
    """List all versions of a text, oldest first.

    \b
    edenmem consolidation history --agent mira --user lena
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    run.out.listing(run.service.history.text_versions(scope), HISTORY)


@app.command("diff", cls=Command)
def diff(
    ctx: typer.Context,
    named: options.OneScope,
    old: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, metavar="N", help="First version.  [default: the one before --to]"
        ),
    ] = None,
    new: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="N", help="Second version.  [default: the latest]"),
    ] = None,
) -> None:
    """Show the difference between two versions of a text.

    \b
    edenmem consolidation diff --agent mira --user lena
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    change = run.service.history.compare_texts(scope, old=old, new=new)
    run.out.report(
        [change],
        lambda: show_diff(
            run.out,
            change.before,
            change.after,
            old=f"version {change.old_version}",
            new=f"version {change.new_version}",
            to_stdout=True,
        ),
        data=lambda it: {
            "from": it.old_version,
            "to": it.new_version,
            "before": it.before,
            "after": it.after,
        },
    )


@app.command("restore", cls=Command)
def restore(
    ctx: typer.Context,
    version: _Version,
    named: options.OneScope,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Restore an earlier version of a text as a new version.

    \b
    edenmem consolidation restore --agent mira --user lena --version 2
    """
    run = invocation(ctx)
    scope = choose_scope(run, named)
    latest = max(entry.version for entry in run.service.history.text_versions(scope))
    change = run.service.history.compare_texts(scope, old=latest, new=version)
    if not run.out.is_data:
        show_diff(run.out, change.before, change.after, old="current", new=f"version {version}")
    if not dry_run and not confirm("Restore it?", yes=yes):
        run.out.note("nothing was changed")
        return
    report = run.edit(
        lambda editor: editor.restore_consolidation(scope, version, reason=reason, dry_run=dry_run)
    )
    print_edit(run, report)


app.command("why", cls=Command)(text_why)
