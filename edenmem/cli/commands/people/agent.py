"""``edenmem agent``: the agents that have memory."""

from __future__ import annotations

from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.choosing import NO_AGENTS
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import invocation
from edenmem.cli.app.views import note_quoting, print_edit
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column
from edenmem.errors import ConflictError
from edenmem.models.host import Agent
from edenmem.models.ids import utc_now

app = group("List and add agents, and set what they remember.")

_COLUMNS: list[Column[Agent]] = [
    Column("id", lambda a: a.id, "id"),
    Column("username", lambda a: a.username),
    Column("name", lambda a: a.name, "text"),
    Column("user memory", lambda a: "on" if a.user_memory_enabled else "off"),
    Column("agent memory", lambda a: "on" if a.agent_memory_enabled else "off"),
]


@app.command("list", cls=Command)
def list_agents(ctx: typer.Context, limit: options.Limit = 50) -> None:
    """List agents and whether their memory is on.

    \b
    edenmem agent list
    """
    run = invocation(ctx)
    run.out.listing(
        run.service.host.agents(),
        _COLUMNS,
        limit=limit,
        empty=NO_AGENTS,
        header=Agent,
    )


@app.command("add", cls=Command)
def add(
    ctx: typer.Context,
    username: Annotated[str, typer.Argument(metavar="NAME", help="Username.")],
    hex_id: options.Hex = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Display name.")] = "",
    persona: Annotated[
        str, typer.Option("--persona", metavar="TEXT", help="Description of the agent.")
    ] = "",
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="USER", help="Owner; required on MongoDB."),
    ] = None,
    user_memory: Annotated[
        bool, typer.Option("--user-memory/--no-user-memory", help="Keep memory about users.")
    ] = True,
    agent_memory: Annotated[
        bool, typer.Option("--agent-memory/--no-agent-memory", help="Keep the agent's own memory.")
    ] = True,
) -> None:
    """Add an agent with its memory enabled.

    Not needed on a platform, which manages its own agents.

    \b
    edenmem agent add mira --name Mira --persona "Keeper of the Lantern Walk"
    edenmem agent add mira --owner lena --no-user-memory
    """
    run = invocation(ctx)
    agent = Agent(
        id=options.parse_id(hex_id),
        username=options.parse_username(username),
        name=name,
        persona=persona,
        owner=run.resolver.user(owner).id if owner else None,
        user_memory_enabled=user_memory,
        agent_memory_enabled=agent_memory,
        created_at=utc_now(),
    )
    if not run.service.accounts.add(agent):
        raise ConflictError(
            f"username or ID is taken: {username!r}",
            hint="see 'edenmem agent list'",
        )
    run.out.record(agent, [("added agent", agent.username), ("id", agent.id)])
    note_quoting(run, agent.username)


@app.command("set", cls=Command)
def set_agent(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Username, ID, or ID prefix.")],
    user_memory: Annotated[
        bool | None, typer.Option("--user-memory/--no-user-memory", help="Keep memory about users.")
    ] = None,
    agent_memory: Annotated[
        bool | None,
        typer.Option("--agent-memory/--no-agent-memory", help="Keep the agent's own memory."),
    ] = None,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Enable or disable an agent's memory. Nothing is removed.

    \b
    edenmem agent set mira --no-user-memory --dry-run
    edenmem agent set mira --user-memory --agent-memory
    """
    run = invocation(ctx)
    if user_memory is None and agent_memory is None:
        raise Missing("--user-memory or --agent-memory")
    found = run.resolver.agent(agent)
    report = run.edit(
        lambda editor: editor.set_agent(
            found.id,
            user_memory=user_memory,
            agent_memory=agent_memory,
            reason=reason,
            dry_run=dry_run,
        )
    )
    print_edit(run, report, target=f"agent {found.username}")
