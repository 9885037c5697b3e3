"""``edenmem consolidation``: the consolidated text of each scope, always in the prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_scope, choose_scopes
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.views import (
    TEXTS,
)
from edenmem.cli.commands.memory.edit import edit_target
from edenmem.cli.commands.memory.show import show_text
from edenmem.cli.terminal.editing import read_text_option, show_diff
from edenmem.engine.scopes.references import Target
from edenmem.models.memory import Consolidation

app = group("List, show, compare and edit consolidated texts.")


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
        TEXTS,
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
    show_text(run, choose_scope(run, named))


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
    target = Target("scope", "", choose_scope(run, named, new_group=True))
    edit_target(run, target, new, allow_long=allow_long, yes=yes, dry_run=dry_run, reason=reason)


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
