"""``edenmem session``: the conversations that memory is formed from."""

from __future__ import annotations

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import agent_id_of
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.views import origin
from edenmem.cli.terminal.tables import Column
from edenmem.models.host import Session

app = group("List sessions.")


@app.command("list", cls=Command)
def list_sessions(
    ctx: typer.Context,
    agent: options.Agent = None,
    user: options.User = None,
    group: options.Group = None,
    limit: options.Limit = 50,
) -> None:
    """List sessions, latest activity first.

    \b
    edenmem session list --agent mira --user lena
    """
    run = invocation(ctx)
    sessions = run.service.host.sessions(
        agent_id=agent_id_of(run, agent),
        user_id=run.resolver.user(user).id if user else None,
        group_id=group,
        limit=options.fetch(limit),
    )
    run.out.listing(sessions, _COLUMNS, limit=limit, empty="no sessions", header=Session)


_COLUMNS: list[Column[Session]] = [
    Column("id", lambda s: s.id, "id"),
    Column("name", lambda s: s.name or s.title, "name"),
    Column("agents", lambda s: tuple(s.agents), names="account"),
    Column("users", lambda s: tuple(s.users), "text", "account"),
    Column("group", lambda s: s.group_id),
    Column("last", lambda s: s.last_activity, "time"),
    Column("state", lambda s: _state(s), "state"),
]


def _state(session: Session) -> str:
    """Return what keeps a session out of a cold run, or how edenmem came to store it."""
    if session.incognito:
        return "incognito"
    if session.imported:
        return origin(session)
    return "" if session.status == "active" else session.status
