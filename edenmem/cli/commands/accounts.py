"""``edenmem agent|user|session|group``: who has memory, and the sessions that it is formed from."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import note_undo_last, note_undo_run, origin, print_edits
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column
from edenmem.errors import ConflictError
from edenmem.models.host import Agent, Session, User
from edenmem.models.ids import utc_now
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.edits.user_merging import AccountMerge
    from edenmem.engine.scopes.overview import GroupOverview

agent_app = group("List and add agents, and set what they remember.")
user_app = group("List, add and merge users.")
session_app = group("List sessions.")
group_app = group("List groups.")


def _add(run: Invocation, account: Agent | User) -> None:
    """Add an account, and print how to write its name if a shell would read it differently."""
    kind = "agent" if isinstance(account, Agent) else "user"
    if not run.service.accounts.add(account):
        raise ConflictError(
            f"username or ID is taken: {account.username!r}", hint=f"see 'edenmem {kind} list'"
        )
    run.out.record(account, [(f"added {kind}", account.username), ("id", account.id)])
    if (quoted := shlex.quote(account.username)) != account.username:
        run.out.note(f"in commands, write the name as {quoted}")
    note_undo_last(run, changed=True)


# -- agents --------------------------------------------------------------------------------------

_AGENTS: list[Column[Agent]] = [
    Column("id", lambda a: a.id, "id"),
    Column("username", lambda a: a.username),
    Column("name", lambda a: a.name, "text"),
    Column("user memory", lambda a: "on" if a.user_memory_enabled else "off"),
    Column("agent memory", lambda a: "on" if a.agent_memory_enabled else "off"),
]


@agent_app.command("list", cls=Command)
def list_agents(run: Invocation, limit: options.Limit = 50) -> None:
    """List agents and whether their memory is on.

    \b
    edenmem agent list
    """
    run.out.listing(
        run.service.host.agents(),
        _AGENTS,
        limit=limit,
        empty=options.NO_AGENTS,
        header=Agent,
    )


@agent_app.command("add", cls=Command)
def add_agent(
    run: Invocation,
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
    _add(run, agent)


@agent_app.command("set", cls=Command)
def set_agent(
    run: Invocation,
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
    print_edits(run, report, target=f"agent {found.username}")


# -- users ---------------------------------------------------------------------------------------

_USERS: list[Column[User]] = [
    Column("id", lambda u: u.id, "id"),
    Column("username", lambda u: u.username, "text"),
    Column("same person as", lambda u: u.eden_user_id),
    Column("since", lambda u: u.created_at, "time"),
]


@user_app.command("list", cls=Command)
def list_users(run: Invocation, limit: options.Limit = 50) -> None:
    """List users and their linked accounts.

    \b
    edenmem user list --limit 20
    """
    run.out.listing(
        run.service.host.users(),
        _USERS,
        limit=limit,
        empty="no users; add one with 'edenmem user add NAME'",
        header=User,
    )


@user_app.command("add", cls=Command)
def add_user(
    run: Invocation,
    username: Annotated[str, typer.Argument(metavar="NAME", help="Username.")],
    hex_id: options.Hex = None,
) -> None:
    """Add a user. Not needed on a platform, which manages its own users.

    \b
    edenmem user add lena
    """
    _add(
        run,
        User(
            id=options.parse_id(hex_id),
            username=options.parse_username(username),
            created_at=utc_now(),
        ),
    )


@user_app.command("merge", cls=Command)
def merge_users(
    run: Invocation,
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
    agent_id = options.agent_id_of(run, agent)
    source_id = run.resolver.account_id(source, agent_id=agent_id)
    target_id = run.resolver.account_id(target, agent_id=agent_id)
    merge = run.service.accounts.merge
    planned = list(merge(source_id, target_id, agent_id=agent_id, dry_run=True))
    if target_id not in run.service.host.person(source_id).ids:
        run.out.note("the accounts are not linked: the memory will belong to another user")
    only_look = dry_run or not planned
    if only_look or not run.out.is_data:
        _print_merges(run, planned)
    if only_look:
        return
    run.confirm("Move this memory?", yes=yes)
    done = list(merge(source_id, target_id, agent_id=agent_id, reason=reason))
    if run.out.is_data:
        _print_merges(run, done)
    note_undo_run(run, run.actor.run_id)
    left = sum(each.left for each in done)
    if left:
        run.out.note(f"left {left} that changed in the meantime: run the same command again")
    end_if(left)


_MERGES: list[Column[AccountMerge]] = [
    Column("agent", lambda each: each.agent_id, names="account"),
    Column("facts", lambda each: each.facts, "number"),
    Column("known already", lambda each: each.twins, "number"),
    Column("reflections", lambda each: each.reflections, "number"),
    Column("held", lambda each: each.held, "number"),
    Column("text", lambda each: each.text),
]


def _print_merges(run: Invocation, merges: list[AccountMerge]) -> None:
    from edenmem.engine.edits.user_merging import AccountMerge  # loads the rules of acceptance

    run.out.listing(merges, _MERGES, empty="no memory to move", header=AccountMerge)
    if keyless := sum(each.keyless for each in merges):
        why = "the other account has another fact with the key"
        run.out.note(f"{many(keyless, 'fact')} without the key: {why}")


# -- sessions and groups -------------------------------------------------------------------------


@session_app.command("list", cls=Command)
def list_sessions(
    run: Invocation,
    agent: options.Agent = None,
    user: options.User = None,
    group: options.Group = None,
    limit: options.Limit = 50,
) -> None:
    """List sessions, latest activity first.

    \b
    edenmem session list --agent mira --user lena
    """
    sessions = run.service.host.sessions(
        agent_id=options.agent_id_of(run, agent),
        user_id=run.resolver.user(user).id if user else None,
        group_id=group,
        limit=options.fetch(limit),
    )
    run.out.listing(sessions, _SESSIONS, limit=limit, empty="no sessions", header=Session)


_SESSIONS: list[Column[Session]] = [
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


@group_app.command("list", cls=Command)
def list_groups(run: Invocation, agent: options.Agent = None, limit: options.Limit = 50) -> None:
    """List the groups of sessions and of memory, latest activity first.

    \b
    edenmem group list --agent mira
    """
    from edenmem.engine.scopes.overview import GroupOverview

    groups = run.service.host.groups(agent_id=options.agent_id_of(run, agent))
    run.out.listing(groups, _GROUPS, limit=limit, empty="no groups", header=GroupOverview)


_GROUPS: list[Column[GroupOverview]] = [
    Column("group", lambda g: g.id, "name"),
    Column("agents", lambda g: g.agents, names="account"),
    Column("users", lambda g: g.users, "text", "account"),
    Column("sessions", lambda g: g.sessions, "number"),
    Column("facts", lambda g: g.facts, "number"),
    Column("last", lambda g: g.last_activity, "time"),
]
