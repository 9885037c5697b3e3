"""``edenmem agent|user|session|group|scope``: who has memory, and the scopes it lies in."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import (
    edit_data,
    edit_line,
    note_undo_last,
    note_undo_run,
    origin,
    print_edits,
    scope_fields,
    scope_name,
)
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column
from edenmem.engine.reports import EditReport, ScopeStatus
from edenmem.errors import ConflictError, NotFoundError
from edenmem.models.host import Agent, Session, User
from edenmem.models.ids import utc_now
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope
from edenmem.text import cell, many

if TYPE_CHECKING:
    from edenmem.engine.edits.user_merging import AccountMerge
    from edenmem.engine.scopes.overview import GroupOverview


agent_app = group("List and add agents, and set what they remember.")
user_app = group("List, add and merge users.")
session_app = group("List sessions.")
group_app = group("List groups.")
scope_app = group("List and show scopes; set policies, pause and resume.")


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
    """List sessions, latest activity first, with the number of messages to form.

    \b
    edenmem session list --agent mira --user lena
    """
    sessions = run.service.host.sessions(
        agent_id=options.agent_id_of(run, agent),
        user_id=run.resolver.user(user).id if user else None,
        group_id=group,
        limit=options.fetch(limit),
    )
    state = Column[Session]("state", lambda session: _session_state(run, session), "state")
    columns = [*_SESSIONS, state]
    run.out.listing(sessions, columns, limit=limit, empty="no sessions", header=Session)


_SESSIONS: list[Column[Session]] = [
    Column("id", lambda s: s.id, "id"),
    Column("name", lambda s: s.name or s.title, "name"),
    Column("agents", lambda s: tuple(s.agents), names="account"),
    Column("users", lambda s: tuple(s.users), "text", "account"),
    Column("group", lambda s: s.group_id),
    Column("last", lambda s: s.last_activity, "time"),
]


def _session_state(run: Invocation, session: Session) -> str:
    """Return why no cold run forms it, what is left to form, or how edenmem came to store it."""
    if session.incognito:
        return "incognito"
    if session.status != "active" and not session.imported:
        return session.status
    if pending := run.service.cold.pending(session):
        return f"{pending:,} to form"
    return origin(session) if session.imported else ""


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


# -- scopes --------------------------------------------------------------------------------------


def _scope_state(status: ScopeStatus) -> str:
    """Return the state of a scope."""
    return "paused" if not status.active else "due" if status.due else ""


_SCOPES: list[Column[ScopeStatus]] = [
    Column("agent", lambda s: s.scope.agent_id, names="account"),
    Column("kind", lambda s: s.scope.kind),
    Column("owner", lambda s: s.scope, "text", "owner"),
    Column("facts", lambda s: s.facts, "number"),
    Column("pending", lambda s: f"{s.pending}/{s.consolidate_at}", "number"),
    Column("text", lambda s: f"v{s.version}" if s.version else "", "number"),
    Column("words", lambda s: f"{s.words}/{s.word_limit}" if s.version else "", "number"),
    Column("state", _scope_state),
]


@scope_app.command("list", cls=Command)
def list_scopes(
    run: Invocation,
    named: options.Scopes,
    due: Annotated[bool, typer.Option("--due", help="Only scopes due for consolidation.")] = False,
    limit: options.Limit = 100,
) -> None:
    """List scopes that contain memory, with their sizes and limits.

    \b
    edenmem scope list --agent mira --scope user
    edenmem scope list --due --format json
    """
    statuses = run.service.scopes.statuses(
        **options.choose_scopes(run, named), min_pending=1 if due else 0
    )
    if due:
        statuses = (status for status in statuses if status.due)
    run.out.listing(
        statuses,
        _SCOPES,
        limit=limit,
        empty="no memory yet",
        header=ScopeStatus,
    )


@scope_app.command("show", cls=Command)
def show(
    run: Invocation,
    named: options.OneScope,
) -> None:
    """Show a scope: sizes, limits and text.

    \b
    edenmem scope show --agent mira --user lena
    """
    scope = options.choose_scope(run, named)
    status = run.service.scopes.status(scope)
    text = run.service.memory.text(scope)
    run.out.record(
        status,
        [
            *scope_fields(run, scope),
            ("state", _scope_state(status) or "active"),
            ("facts", status.facts),
            ("pending", f"{status.pending} of {status.consolidate_at}"),
            ("oldest pending", status.oldest_pending_at),
            ("version", status.version or "no text yet"),
            ("words", f"{status.words} of {status.word_limit}"),
            ("consolidated", status.last_consolidated_at),
        ],
        text=text.consolidated_content if text else "",
    )


#: Fields of a policy that have a default.
_Resettable = StrEnum(
    "_Resettable",
    {
        "MEMORY_INSTRUCTIONS": "memory-instructions",
        "CONSOLIDATION_INSTRUCTIONS": "consolidation-instructions",
        "CONSOLIDATE_AT": "consolidate-at",
        "WORD_LIMIT": "word-limit",
        "FACT_BUFFER_MAX": "fact-buffer-max",
        "FAST_MODEL": "fast-model",
        "SLOW_MODEL": "slow-model",
        "PROPAGATE": "propagate",
        "ORDERS": "orders",
        "REVIEW": "review",
    },
)


@scope_app.command("policy", cls=Command)
def policy(
    run: Invocation,
    named: options.OneScope,
    memory_instructions: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What to remember in this scope, and what not."),
    ] = None,
    consolidation_instructions: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How to write the text.")
    ] = None,
    consolidate_at: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Consolidate at N pending reflections."),
    ] = None,
    word_limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum number of words in the text.")
    ] = None,
    fact_buffer_max: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Maximum number of facts to keep (0 = no limit)."),
    ] = None,
    fast_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model for extracting facts.")
    ] = None,
    slow_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model for reflecting and consolidating.")
    ] = None,
    private: Annotated[
        bool | None,
        typer.Option("--private/--no-private", help="Never propagate from this scope."),
    ] = None,
    propagate: Annotated[
        bool | None,
        typer.Option(
            "--propagate/--no-propagate", help="Propagate general memories to wider scopes."
        ),
    ] = None,
    orders: Annotated[
        bool | None,
        typer.Option(
            "--orders/--no-orders", help="Also keep instructions to the agent in the shard."
        ),
    ] = None,
    review: Annotated[
        Literal["nothing", "doubtful", "everything"] | None,
        typer.Option(
            "--review",
            metavar="WHAT",
            help="What waits for 'edenmem review': nothing, doubtful or everything.",
        ),
    ] = None,
    default: Annotated[
        list[_Resettable] | None,
        typer.Option(
            "--default", metavar="NAME", help="Reset a field, such as word-limit (repeatable)."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Show or change the policy of a scope. --memory-instructions can create a shard.

    \b
    edenmem scope policy --agent mira --user lena --word-limit 400
    edenmem scope policy --agent mira --shard route --memory-instructions "Roads"
    edenmem scope policy --agent mira --default word-limit
    """
    values: dict[str, object] = {
        "memory_instructions": memory_instructions,
        "consolidation_instructions": consolidation_instructions,
        "consolidate_at": consolidate_at,
        "word_limit": word_limit,
        "fact_buffer_max": fact_buffer_max,
        "fast_model": fast_model,
        "slow_model": slow_model,
        "private": private,
        "propagate": propagate,
        "orders": orders,
        "review": review,
    }
    changes = {name: value for name, value in values.items() if value is not None}
    changes |= {name.replace("-", "_"): None for name in default or ()}
    # An unknown shard without instructions is a typing error.
    is_instructed = bool((memory_instructions or "").strip())
    scope = options.choose_scope(run, named, new=is_instructed, new_group=bool(changes))
    stored = run.service.scopes.policy(scope)
    if not changes:
        _show_policy(run, scope, stored)
        return
    report = run.edit(
        lambda editor: editor.set_policy(
            scope,
            changes,
            expected_version=stored.version if stored else 0,
            reason=reason,
            dry_run=dry_run,
        )
    )
    target = f"the policy of {scope_name(run, scope)}"
    if dry_run:
        _print_plan(run, report, f"{target}, a new shard" if _is_new_shard(run, scope) else target)
    else:
        print_edits(run, report, target=target)


def _is_new_shard(run: Invocation, scope: Scope) -> bool:
    if scope.shard_name is None:
        return False
    try:
        run.resolver.scope(scope.kind, agent=scope.agent_id, shard=scope.shard_name)
    except NotFoundError:
        return True
    return False


def _print_plan(run: Invocation, report: EditReport, target: str) -> None:
    """Print a planned change of a policy, with each field before and after."""
    from edenmem.engine.edits.checks import POLICY_FIELDS  # loads the rules of acceptance

    run.out.notes(report.notices)
    after = report.after or {}
    before = report.before or dict.fromkeys(after) | {"private": False, "active": True}

    def describe(value: object) -> str:
        return "default" if value is None else cell(value)

    if run.out.data([report], edit_data):
        return
    run.out.line(edit_line(report, target=target))
    run.out.fields(
        [
            (
                f"  {field.replace('_', ' ')}",
                f"{describe(before.get(field))} → {describe(after[field])}",
            )
            for field in POLICY_FIELDS
            if field in after and after[field] != before.get(field)
        ]
    )


def _show_policy(run: Invocation, scope: Scope, stored: Policy | None) -> None:
    policy = stored or Policy(id="", **scope.fields())
    status = run.service.scopes.status(scope)
    defaults = getattr(run.settings.scopes, scope.kind.value)

    def or_default(value: object, default: object) -> str:
        return cell(value) if value is not None else f"{cell(default)} (default)"

    facts_kept = or_default(policy.fact_buffer_max, defaults.fact_buffer_max or "all")
    run.out.record(
        policy,
        [
            *scope_fields(run, scope),
            ("state", "active" if policy.active else "paused"),
            ("private", policy.private),
            ("propagates", or_default(policy.propagate, defaults.propagate)),
            ("orders", or_default(policy.orders, False) if scope.shard_name else None),
            ("review", or_default(policy.review, defaults.review)),
            ("consolidate at", or_default(policy.consolidate_at, status.consolidate_at)),
            ("word limit", or_default(policy.word_limit, status.word_limit)),
            ("facts kept", facts_kept),
            ("fast model", or_default(policy.fast_model, run.settings.llm.fast_model)),
            ("slow model", or_default(policy.slow_model, run.settings.llm.slow_model)),
            ("version", policy.version),
            ("updated", policy.updated_at),
        ],
        text="\n\n".join(
            f"{title}:\n{text}"
            for title, text in (
                ("memory instructions", policy.memory_instructions),
                ("consolidation instructions", policy.consolidation_instructions),
            )
            if text
        ),
    )


@scope_app.command("pause", cls=Command)
def pause(
    run: Invocation,
    named: options.OneScope,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Pause a scope: keep its memory, and refuse new memory.

    \b
    edenmem scope pause --agent mira --shard route --reason "moving"
    """
    _set_active(run, named, dry_run=dry_run, reason=reason, verbs=("pause", "paused"))


@scope_app.command("resume", cls=Command)
def resume(
    run: Invocation,
    named: options.OneScope,
    dry_run: options.DryRun = False,
    reason: options.Reason = "",
) -> None:
    """Resume a paused scope.

    \b
    edenmem scope resume --agent mira --shard route
    """
    _set_active(run, named, dry_run=dry_run, reason=reason, verbs=("resume", "resumed"))


def _set_active(
    run: Invocation,
    named: options.OneScope,
    *,
    dry_run: bool,
    reason: str,
    verbs: tuple[str, str],
) -> None:
    scope = options.choose_scope(run, named)
    changes = {"active": verbs[0] == "resume"}
    report = run.service.editor.set_policy(scope, changes, reason=reason, dry_run=dry_run)
    print_edits(run, report, verbs=verbs, target=scope_name(run, scope))
