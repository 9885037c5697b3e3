"""``edenmem user``: the users that memory is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import note_quoting
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column
from edenmem.errors import ConflictError, ExitCode
from edenmem.models.host import User
from edenmem.models.ids import utc_now
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.edits.user_merging import AccountMerge

app = group("List, add and merge users.")

_COLUMNS: list[Column[User]] = [
    Column("id", lambda u: u.id, "id"),
    Column("username", lambda u: u.username, "text"),
    Column("same person as", lambda u: u.eden_user_id),
    Column("since", lambda u: u.created_at, "time"),
]


@app.command("list", cls=Command)
def list_users(ctx: typer.Context, limit: options.Limit = 50) -> None:
    """List users and their linked accounts.

    \b
    edenmem user list --limit 20
    """
    run = invocation(ctx)
    run.out.listing(
        run.service.host.users(),
        _COLUMNS,
        limit=limit,
        empty="no users; add one with 'edenmem user add NAME'",
        header=User,
    )


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    username: Annotated[str, typer.Argument(metavar="NAME", help="Username.")],
    hex_id: options.Hex = None,
) -> None:
    """Add a user. Not needed on a platform, which manages its own users.

    \b
    edenmem user add lena
    """
    run = invocation(ctx)
    user = User(
        id=options.parse_id(hex_id),
        username=options.parse_username(username),
        created_at=utc_now(),
    )
    if not run.service.accounts.add(user):
        raise ConflictError(
            f"username or ID is taken: {username!r}", hint="see 'edenmem user list'"
        )
    run.out.record(user, [("added user", user.username), ("id", user.id)])
    note_quoting(run, user.username)


@app.command("merge", cls=Command)
def merge(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="Account to move memory from: username or ID.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="Account to move memory to: username or ID.")
    ],
    agent: options.Agent = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Move memory from one account to another, for one agent or all.

    Moves facts, reflections, held items and the text. A fact of both accounts is kept once, with
    the sources of both. A fact whose key is taken moves without the key. If the target has a text,
    the lines of the other text become pending reflections, which the next consolidation merges.
    Links between accounts stay unchanged. After an interruption, run the same command again.
    'undo --run' reverts a merge.

    \b
    edenmem user merge lena-discord lena --dry-run
    edenmem user merge lena-discord lena --agent mira --yes
    """
    run = invocation(ctx)
    agent_id = agent_id_of(run, agent)
    source_id = run.resolver.account_id(source, agent_id=agent_id)
    target_id = run.resolver.account_id(target, agent_id=agent_id)
    merge_accounts = run.service.accounts.merge
    planned = list(merge_accounts(source_id, target_id, agent_id=agent_id, dry_run=True))
    if target_id not in run.service.host.person(source_id).ids:
        run.out.note("the accounts are not linked: the memory will belong to another user")
    if dry_run or not planned:
        _print_merges(run, planned)
        return
    if not run.out.is_data:
        _print_merges(run, planned)
    if not confirm("Move this memory?", yes=yes):
        run.out.note("nothing was changed")
        return
    done = list(merge_accounts(source_id, target_id, agent_id=agent_id, reason=reason))
    if run.out.is_data:
        _print_merges(run, done)
    run.out.note(f"to undo this run: edenmem undo --run {run.actor.run_id}")
    if left := sum(each.left for each in done):
        run.out.note(f"left {left} that changed in the meantime: run the same command again")
        raise typer.Exit(ExitCode.SOME_FAILED)


def _print_merges(run: Invocation, merges: list[AccountMerge]) -> None:
    from edenmem.engine.edits.user_merging import AccountMerge

    columns: list[Column[AccountMerge]] = [
        Column("agent", lambda each: each.agent_id, names="account"),
        Column("facts", lambda each: each.facts, "number"),
        Column("known already", lambda each: each.twins, "number"),
        Column("reflections", lambda each: each.reflections, "number"),
        Column("held", lambda each: each.held, "number"),
        Column("text", lambda each: each.text),
    ]
    run.out.listing(merges, columns, empty="no memory to move", header=AccountMerge)
    if keyless := sum(each.keyless for each in merges):
        why = "the other account has another fact with the key"
        run.out.note(f"{many(keyless, 'fact')} without the key: {why}")
