"""``edenmem user``: the people that memory is about."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli import options
from edenmem.cli.framework import Command, group
from edenmem.cli.invocation import invocation
from edenmem.cli.tables import Column
from edenmem.errors import ConflictError
from edenmem.models.host import User
from edenmem.models.ids import utc_now

app = group("Users: the people that memory is about.")

_COLUMNS: list[Column[User]] = [
    Column("id", lambda u: u.id, "id"),
    Column("username", lambda u: u.username, "text"),
    Column("same person as", lambda u: u.eden_user_id),
    Column("since", lambda u: u.created_at, "time"),
]


@app.command("list", cls=Command)
def list_users(ctx: typer.Context, limit: options.Limit = 50) -> None:
    """List the people that memory is about.

    \b
    edenmem user list --limit 20
    """
    run = invocation(ctx)
    run.out.listing(
        run.store.users(),
        _COLUMNS,
        limit=limit,
        empty="no users; 'edenmem user add NAME'",
        header=User,
    )


@app.command("show", cls=Command)
def show(
    ctx: typer.Context,
    user: Annotated[str, typer.Argument(metavar="USER", help="Username, id or its beginning.")],
) -> None:
    """Show one user, and the id that memory is kept under.

    \b
    edenmem user show lena
    """
    run = invocation(ctx)
    found = run.resolver.user(user)
    run.out.record(
        found,
        [
            ("id", found.id),
            ("username", found.username),
            ("memory is kept under", found.person_id),
            ("tier", found.subscription_tier),
            ("flags", list(found.feature_flags)),
            ("created", found.created_at),
        ],
    )


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    username: Annotated[str, typer.Argument(metavar="NAME", help="The username.")],
    hex_id: options.Hex = None,
) -> None:
    """Add a user, where no platform does so.

    \b
    edenmem user add lena
    """
    from edenmem.engine.accounts import add_account

    run = invocation(ctx)
    user = User(
        id=options.checked_id(hex_id),
        username=options.checked_username(username),
        created_at=utc_now(),
    )
    if not add_account(run.store, user, actor=run.actor, at=utc_now()):
        raise ConflictError(f"the username {username!r} or the id is taken")
    run.out.record(user, [("added user", user.username), ("id", user.id)])
