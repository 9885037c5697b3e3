"""``edenmem reflection|consolidation``: interpretations, and the texts they are merged into."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.views import REFLECTIONS, TEXTS, print_edits
from edenmem.cli.commands.edit import edit_target
from edenmem.cli.commands.fact import read_new
from edenmem.cli.commands.show import show_text
from edenmem.cli.terminal.editing import read_text_option, show_diff
from edenmem.engine.scopes.references import Target
from edenmem.models.memory import Consolidation, Reflection
from edenmem.models.scope import Scope, ScopeKind

reflection_app = group("List and add reflections.")
consolidation_app = group("List, show, compare and edit consolidated texts.")


@reflection_app.command("list", cls=Command)
def list_reflections(
    run: Invocation,
    named: options.OneScope,
    account: options.Account = None,
    pending: Annotated[
        bool | None,
        typer.Option(
            "--pending/--absorbed", help="Only pending or only absorbed ones.  [default: both]"
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 50,
) -> None:
    """List reflections of a scope or agent, newest first.

    \b
    edenmem reflection list --agent mira --pending
    edenmem reflection list --agent mira --since 7d
    edenmem reflection list --agent mira --user lena
    """
    begin, end = options.period(since, until)
    is_of_user = bool(named.user or account)
    usual = ScopeKind.USER if is_of_user else ScopeKind.AGENT
    if named.group or named.shard or named.session or named.kind not in (None, usual):
        scopes: tuple[Scope, ...] = (options.choose_scope(run, named),)
    else:
        agent_id = options.choose_agent(run, named.agent).id
        if is_of_user:
            owners = options.resolve_accounts(run, named.user, account, agent_id=agent_id)
            scopes = tuple(Scope.user(agent_id, owner) for owner in owners or ())
        else:
            scopes = run.service.scopes.of_agent(agent_id, [named.kind] if named.kind else [])
    run.out.listing(
        run.service.memory.reflections(
            scopes,
            absorbed=None if pending is None else not pending,
            since=begin,
            before=end,
            limit=options.fetch(limit),
        ),
        REFLECTIONS,
        limit=limit,
        empty="no reflections",
        header=Reflection,
    )


@reflection_app.command("add", cls=Command)
def add_reflection(
    run: Invocation,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Text of the reflection.")
    ] = None,
    *,
    named: options.OneScope,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    private: options.Private = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Add a reflection, pending until its scope is consolidated.

    \b
    edenmem reflection add --agent mira --user lena "Wants short answers."
    """
    scope, new = read_new(run, named, text, content, file)
    report = run.edit(
        lambda editor: editor.add_reflection(
            scope, new, private=private, allow_long=allow_long, reason=reason, dry_run=dry_run
        )
    )
    print_edits(run, report)


@consolidation_app.command("list", cls=Command)
def list_texts(
    run: Invocation,
    named: options.Scopes,
    limit: options.Limit = 50,
) -> None:
    """List consolidated texts.

    \b
    edenmem consolidation list --agent mira
    """
    run.out.listing(
        run.service.memory.texts(**options.choose_scopes(run, named)),
        TEXTS,
        limit=limit,
        empty="no texts yet",
        header=Consolidation,
    )


@consolidation_app.command("show", cls=Command)
def show(
    run: Invocation,
    named: options.OneScope,
) -> None:
    """Show the text of a scope.

    \b
    edenmem consolidation show --agent mira --user lena
    """
    show_text(run, options.choose_scope(run, named))


@consolidation_app.command("edit", cls=Command)
def edit(
    run: Invocation,
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
    new = read_text_option(content, file)
    target = Target("scope", "", options.choose_scope(run, named, new_group=True))
    edit_target(run, target, new, allow_long=allow_long, yes=yes, dry_run=dry_run, reason=reason)


@consolidation_app.command("diff", cls=Command)
def diff(
    run: Invocation,
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
    scope = options.choose_scope(run, named)
    change = run.service.history.compare_texts(scope, old=old, new=new)
    data = {
        "from": change.old_version,
        "to": change.new_version,
        "before": change.before,
        "after": change.after,
    }
    if not run.out.data([data], dict):
        show_diff(
            run.out,
            change.before,
            change.after,
            old=f"version {change.old_version}",
            new=f"version {change.new_version}",
            to_stdout=True,
        )
