"""``edenmem token``: access tokens of the server."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import choose_agent
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.views import agent_name
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.prompts import confirm
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.times import parse_duration
from edenmem.models.access import AccessToken
from edenmem.models.ids import utc_now

app = group("Create, list and revoke access tokens of the server.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]


@app.command("create", cls=Command)
def create(
    ctx: typer.Context,
    name: _Name,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="AGENT",
            help="Agent that the token gives access to: username, ID, or ID prefix (repeatable).",
        ),
    ] = None,
    user: options.User = None,
    write: Annotated[
        bool, typer.Option("--write", help="Allow writing; otherwise read-only.")
    ] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="Lifetime: 12h, 90d, 1y.  [default: unlimited]"
        ),
    ] = None,
) -> None:
    """Create an access token for agents and, with --user, for one user.

    Without --user, the token gives access to the memory of every user of the agents. The token is
    shown once and stored as a hash. Its name is the author of its changes in history and log.

    \b
    edenmem token create website --agent mira --expires 90d
    edenmem token create lena-phone --agent mira --user lena --write
    """
    run = invocation(ctx)
    run.must_write("token create")
    agents = [choose_agent(run, given) for given in agent or (None,)]
    user_id = run.resolver.user_id(user) if user else None
    token, secret = run.service.tokens.create(
        name,
        agents=[each.id for each in agents],
        user_id=user_id,
        can_write=write,
        expires_at=utc_now() + parse_duration(expires, "--expires") if expires else None,
    )
    run.out.record(
        token,
        [
            ("token", secret),
            ("name", token.name),
            ("agents", [each.username for each in agents]),
            ("user", _user_name(run, token.user_id)),
            ("access", _access(token)),
            ("expires", token.expires_at),
        ],
        data=lambda each: {"token": secret, **_data(each)},
    )
    run.out.note("copy the token now: only its hash is stored")


@app.command("list", cls=Command)
def list_tokens(ctx: typer.Context) -> None:
    """List tokens with their access and their last use, to the hour.

    \b
    edenmem token list
    """
    run = invocation(ctx)
    now = utc_now()
    columns = [
        Column[AccessToken]("name", lambda each: each.name, "name"),
        Column[AccessToken](
            "agents", lambda each: ", ".join(agent_name(run, id) for id in each.agents), "text"
        ),
        Column[AccessToken]("user", lambda each: _user_name(run, each.user_id), "text"),
        Column[AccessToken]("access", _access),
        Column[AccessToken]("created", lambda each: each.created_at, "time"),
        Column[AccessToken]("last used", lambda each: each.last_used_at, "time"),
        Column[AccessToken]("expires", lambda each: _end(each, now), "time"),
    ]
    run.out.listing(
        run.service.tokens.list_all(),
        columns,
        data=_data,
        empty="no tokens; create one with 'edenmem token create NAME --agent AGENT'",
        header=[each for each in AccessToken.__struct_fields__ if each != "digest"],
    )


@app.command("revoke", cls=Command)
def revoke(
    ctx: typer.Context,
    name: _Name,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Revoke a token immediately. Its name can be reused.

    \b
    edenmem token revoke website --dry-run
    edenmem token revoke website --yes
    """
    run = invocation(ctx)
    token = run.service.tokens.find(name)
    if not dry_run and not confirm(f"Revoke the token {token.name!r}?", yes=yes):
        run.out.note("nothing was changed")
        return
    if not dry_run:
        token = run.service.tokens.revoke(name)
    title = "would revoke" if dry_run else "revoked"
    run.out.record(
        token,
        [
            (title, token.name),
            ("agents", [agent_name(run, id) for id in token.agents]),
            ("user", _user_name(run, token.user_id)),
            ("last used", token.last_used_at),
        ],
        data=_data,
    )


def _data(token: AccessToken) -> dict[str, Any]:
    data = to_data(token)
    del data["digest"]
    return data


def _access(token: AccessToken) -> str:
    return "read and write" if token.can_write else "read"


def _end(token: AccessToken, now: datetime) -> datetime | str | None:
    return "expired" if token.has_expired(now) else token.expires_at


def _user_name(run: Invocation, user_id: str | None) -> str:
    """Return the name of a token's user, their ID if they are gone, or "" for all users."""
    if user_id is None:
        return ""
    return run.service.host.person(user_id).names.get(user_id, user_id)
