"""``edenmem reflection``: interpretations, pending until they are consolidated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_agent, choose_scope, resolve_accounts
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import (
    agent_name,
    print_edit,
    print_edits,
    reflection_columns,
    scope_name,
)
from edenmem.cli.terminal.editing import change_text, read_text_option
from edenmem.cli.terminal.prompts import ask_text, confirm
from edenmem.engine.reports import EditReport
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.text import many, one_line

if TYPE_CHECKING:
    from edenmem.engine.edits.editor import Editor

app = group("List, show, add, edit and delete reflections.")

_Which = Annotated[str, typer.Argument(metavar="REFLECTION", help="ID or ID prefix.")]


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
        reflection_columns(run),
        limit=limit,
        empty="no reflections",
        header=Reflection,
    )


@app.command("show", cls=Command)
def show(ctx: typer.Context, reflection: _Which) -> None:
    """Show a reflection in full.

    \b
    edenmem reflection show 65a1f0
    """
    run = invocation(ctx)
    found = run.resolver.reflection(reflection)
    run.out.record(found, _fields(run, found), text=found.content)


def _fields(run: Invocation, reflection: Reflection) -> list[tuple[str, object]]:
    return [
        ("id", reflection.id),
        ("agent", agent_name(run, reflection.agent_id)),
        ("scope", scope_name(run, reflection.home, within_agent=True)),
        ("said", reflection.said_at),
        ("formed", reflection.formed_at),
        ("updated", reflection.updated_at),
        ("version", reflection.version),
        ("private", reflection.private),
        ("session", reflection.session_id),
        ("messages", list(reflection.source_message_ids)),
        ("state", "absorbed" if reflection.absorbed else "pending"),
        ("absorbed", reflection.absorbed_at),
        ("derived from", list(reflection.propagated_from)),
    ]


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


@app.command("edit", cls=Command)
def edit(
    ctx: typer.Context,
    reflection: _Which,
    content: options.Content = None,
    file: options.File = None,
    allow_long: options.AllowLong = False,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Edit a pending reflection, in $EDITOR or with --content.

    \b
    edenmem reflection edit 65a1f0 --content "Prefers short answers."
    """
    run = invocation(ctx)
    found = run.resolver.reflection(reflection)

    def write(text: str, only_try: bool) -> EditReport:
        return run.edit(
            lambda editor: editor.edit_reflection(
                found.id,
                text,
                expected_version=found.version,
                allow_long=allow_long,
                reason=reason,
                dry_run=only_try,
            )
        )

    change_text(
        run.out,
        found.content,
        name=f"reflection-{found.id}",
        given=read_text_option(content, file),
        yes=yes,
        dry_run=dry_run,
        write=write,
        show=lambda report: print_edit(run, report),
    )


@app.command("delete", cls=Command)
def delete(
    ctx: typer.Context,
    reflections: Annotated[
        list[str], typer.Argument(metavar="REFLECTION…", help="IDs or ID prefixes.")
    ],
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Delete reflections. 'edenmem undo' brings them back.

    \b
    edenmem reflection delete 65a1f0 --yes
    """
    run = invocation(ctx)
    found = [run.resolver.reflection(reflection) for reflection in reflections]
    for reflection in found:
        run.out.note(f"{reflection.id}  {one_line(reflection.content, 60)}")
    count = many(len(found), "reflection")
    if not dry_run and not confirm(f"Delete {count}?", yes=yes):
        run.out.note("nothing was changed")
        return

    def work(editor: Editor) -> list[EditReport]:
        return [
            editor.delete_reflection(
                reflection.id,
                expected_version=reflection.version,
                reason=reason,
                dry_run=dry_run,
            )
            for reflection in found
        ]

    print_edits(run, run.edit(work))
