"""From options to an agent or a scope, asking for what is missing where a person is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.prompts import ask_choice, ask_text, person_is_there
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.host import Agent
from edenmem.models.scope import Scope, ScopeKind

#: How many agents are offered in a question.
_OFFERED = 50


def choose_agent(run: Invocation, given: str | None) -> Agent:
    """The agent that was named; else the only one there is; else the one a person picks."""
    if given:
        return run.resolver.agent(given)
    agents = list(itertools.islice(run.store.host.agents(), _OFFERED))
    if not agents:
        raise NotFoundError(
            "the store knows no agent", hint="add one with 'edenmem agent add NAME'"
        )
    if len(agents) == 1:
        run.out.note(f"agent: {agents[0].username}, the only one")
        return agents[0]
    chosen = ask_choice("agent", "--agent", [(agent.id, agent.username) for agent in agents])
    return run.resolver.agent(chosen)


def check_hold_facts(kinds: Iterable[ScopeKind]) -> None:
    """That scopes of these kinds can have facts.

    Raises:
        UsageError: those of sessions have reflections and a text alone.
    """
    if ScopeKind.SESSION in kinds:
        raise UsageError(
            "a session scope has no facts, only reflections and a text",
            hint="facts formed from a session: 'edenmem fact list --session NAME'; its "
            "reflections: 'edenmem reflection list --session NAME'",
        )


def choose_scope(
    run: Invocation,
    *,
    kind: ScopeKind | None,
    agent: str | None,
    user: str | None = None,
    group: str | None = None,
    shard: str | None = None,
    session: str | None = None,
    new: bool = False,
    new_group: bool = False,
) -> Scope:
    """The one scope that the options name; without a kind, that of the owner given.

    ``new`` lets a shard or group pass that does not exist yet, ``new_group`` a group alone.
    """
    owners = {
        ScopeKind.USER: user,
        ScopeKind.GROUP: group,
        ScopeKind.SHARD: shard,
        ScopeKind.SESSION: session,
    }
    if kind is None:
        given = [owner_kind for owner_kind, owner in owners.items() if owner]
        if len(given) > 1:
            options = " and ".join(f"--{one}" for one in given)
            raise UsageError(f"{options} name different scopes", hint="say which with --scope")
        kind = given[0] if given else ScopeKind.AGENT
    if kind is not ScopeKind.AGENT and not owners[kind] and person_is_there():
        owners[kind] = ask_text(kind.value, f"--{kind}")
    return run.resolver.scope(
        kind,
        agent=choose_agent(run, agent),
        user=owners[ScopeKind.USER],
        group=owners[ScopeKind.GROUP],
        shard=owners[ScopeKind.SHARD],
        session=owners[ScopeKind.SESSION],
        new=new,
        new_group=new_group,
    )


def resolve_user(
    run: Invocation, user: str | None, account: str | None, *, agent_id: str | None = None
) -> tuple[str | None, str | None]:
    """The ids that ``--user`` and ``--account`` name."""
    user_id = run.resolver.user_id(user, agent_id=agent_id) if user else None
    if not account:
        return user_id, None
    return user_id, run.resolver.account_id(account, user_id=user_id, agent_id=agent_id)


def resolve_accounts(
    run: Invocation, user: str | None, account: str | None, *, agent_id: str | None = None
) -> tuple[str, ...] | None:
    """The accounts that ``--user`` and ``--account`` name: all of the user's, or the one."""
    from edenmem.engine.scopes.people import resolve_person

    user_id, account_id = resolve_user(run, user, account, agent_id=agent_id)
    return resolve_person(run.store, user_id, account_id).ids if user_id or account_id else None


def readable_scopes(
    run: Invocation,
    agent: Agent,
    *,
    kinds: Sequence[ScopeKind] | None,
    user: str | None,
    account: str | None,
    group: str | None,
    shard: str | None,
) -> tuple[Scope, ...]:
    """The scopes that an operator's list of facts covers; a user's or group's only if named."""
    from edenmem.engine.scopes.visibility import reader_scopes

    check_hold_facts(kinds or ())
    user_id, account_id = resolve_user(run, user, account, agent_id=agent.id)
    return reader_scopes(
        run.store,
        agent,
        user_id=user_id,
        account_id=account_id,
        group_id=run.resolver.group(agent, group) if group else None,
        shards=[run.resolver.shard(agent, shard)] if shard else None,
        kinds=kinds,
    )
