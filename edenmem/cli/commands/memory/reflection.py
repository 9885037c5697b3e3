"""``edenmem reflection``: interpretations, pending until they are consolidated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_agent, choose_scope, resolve_accounts
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.views import (
    REFLECTIONS,
    print_edit,
)
from edenmem.cli.terminal.editing import read_text_option
from edenmem.cli.terminal.prompts import ask_text
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope, ScopeKind

if TYPE_CHECKING:
    pass

app = group("List and add reflections.")


@app.command("list", cls=Command)
def list_reflections(
    ctx: typer.Context,
    agent: options.Agent = None,
    kind: options.Kind = None,
    user: options.User = None,
    account: options.Account = None,
    group: options.Group = None,
    shard: options.Shard = None,
    session: options.Session = None,
    pending: Annotated[
        bool | None,
        typer.Option(
            "--pending/--absorbed", help="Only pending or only absorbed ones.  [default: both]"
        ),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep", metavar="TEXT", help="Only reflections that contain TEXT (ignoring case)."
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 50,
) -> None:
    """List reflections of a scope or agent, newest first.

    \b
    edenmem reflection list --agent mira --pending
    edenmem reflection list --agent mira --grep lantern --since 7d
    edenmem reflection list --agent mira --user lena
    """
    run = invocation(ctx)
    begin, end = options.period(since, until)
    scopes: tuple[Scope, ...]
    if kind in (None, ScopeKind.AGENT) and not (user or account or group or shard or session):
        chosen = choose_agent(run, agent)
        scopes = run.service.scopes.of_agent(chosen.id, [kind] if kind else [])
    elif kind in (None, ScopeKind.USER) and (user or account) and not (group or shard or session):
        chosen = choose_agent(run, agent)
        owners = resolve_accounts(run, user, account, agent_id=chosen.id)
        scopes = tuple(Scope.user(chosen.id, owner) for owner in owners or ())
    else:
        named = options.OneScope(
            agent=agent, kind=kind, user=user, group=group, shard=shard, session=session
        )
        scopes = (choose_scope(run, named),)
    run.out.listing(
        run.service.memory.find_reflections(
            scopes,
            absorbed=None if pending is None else not pending,
            containing=grep or "",
            since=begin,
            before=end,
            limit=options.fetch(limit),
        ),
        REFLECTIONS,
        limit=limit,
        empty="no reflections",
        header=Reflection,
    )


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
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
    run = invocation(ctx)
    new = read_text_option(text if content is None else content, file)
    scope = choose_scope(run, named, new_group=True)
    if new is None:
        new = ask_text("reflection", "TEXT, --content or --file")
    report = run.edit(
        lambda editor: editor.add_reflection(
            scope, new, private=private, allow_long=allow_long, reason=reason, dry_run=dry_run
        )
    )
    print_edit(run, report)
