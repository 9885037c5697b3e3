"""Resolving options to agents and scopes, with questions on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TypedDict

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.options import FactScope, OneScope, Owners, Scopes
from edenmem.cli.terminal.prompts import ask_choice, ask_text, person_is_there
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.host import Agent
from edenmem.models.scope import Scope, ScopeKind

#: Maximum number of agents to choose from.
_OFFERED = 50

#: Note on a store without agents.
NO_AGENTS = "no agents; add one with 'edenmem agent add NAME'"


def choose_agent(run: Invocation, given: str | None) -> Agent:
    """Return the given agent, the only one, or the one chosen on a terminal."""
    if given:
        return run.resolver.agent(given)
    agents = list(itertools.islice(run.service.host.agents(), _OFFERED))
    if not agents:
        raise NotFoundError("the store has no agents", hint="add one with 'edenmem agent add NAME'")
    if len(agents) == 1:
        run.out.note(f"agent: {agents[0].username}, the only one")
        return agents[0]
    chosen = ask_choice("agent", "--agent", [(agent.id, agent.username) for agent in agents])
    return run.resolver.agent(chosen)


def check_hold_facts(kinds: Iterable[ScopeKind]) -> None:
    """Check that scopes of these kinds can have facts.

    Raises:
        UsageError: A session scope is included, which has only reflections and a text.
    """
    if ScopeKind.SESSION in kinds:
        raise UsageError(
            "a session scope has no facts, only reflections and a text",
            hint="for facts from a session, use 'edenmem fact list --session NAME'; for its "
            "reflections, 'edenmem reflection list --session NAME'",
        )


def agent_id_of(run: Invocation, given: str | None) -> str | None:
    """Return the ID of the given agent, or None."""
    return run.resolver.agent(given).id if given else None


def choose_scope(
    run: Invocation, named: FactScope, *, new: bool = False, new_group: bool = False
) -> Scope:
    """Return the scope that the options name; without a kind, the scope of the given owner.

    ``new`` accepts a shard or group that does not exist yet, ``new_group`` only a group.
    """
    owners = {
        ScopeKind.USER: named.user,
        ScopeKind.GROUP: named.group,
        ScopeKind.SHARD: named.shard,
        ScopeKind.SESSION: named.session if isinstance(named, OneScope) else None,
    }
    kind = named.kind
    if kind is None:
        given = [owner_kind for owner_kind, owner in owners.items() if owner]
        if len(given) > 1:
            options = " and ".join(f"--{one}" for one in given)
            raise UsageError(f"{options} name different scopes", hint="choose one with --scope")
        kind = given[0] if given else ScopeKind.AGENT
    if kind is not ScopeKind.AGENT and not owners[kind] and person_is_there():
        owners[kind] = ask_text(kind.value, f"--{kind}")
    return run.resolver.scope(
        kind,
        agent=choose_agent(run, named.agent),
        user=owners[ScopeKind.USER],
        group=owners[ScopeKind.GROUP],
        shard=owners[ScopeKind.SHARD],
        session=owners[ScopeKind.SESSION],
        new=new,
        new_group=new_group,
    )


class ScopeFilter(TypedDict):
    """Filter for scopes."""

    agent_id: str | None
    kinds: Sequence[ScopeKind]
    user_ids: Sequence[str] | None


def choose_scopes(run: Invocation, named: Scopes) -> ScopeFilter:
    """Return the filter for the options of a list."""
    agent_id = agent_id_of(run, named.agent)
    return {
        "agent_id": agent_id,
        "kinds": named.kinds or (),
        "user_ids": resolve_accounts(run, named.user, named.account, agent_id=agent_id),
    }


class Reader(TypedDict):
    """Owners and kinds of scopes to read, in addition to the agent."""

    user_id: str | None
    account_id: str | None
    group_id: str | None
    shards: Sequence[str] | None
    kinds: Sequence[ScopeKind] | None


def choose_reader(
    run: Invocation, agent: Agent, owners: Owners, kinds: Sequence[ScopeKind] | None
) -> Reader:
    """Return the owners to read; users and groups only if they are named."""
    user_id, account_id = _resolve_user(run, owners.user, owners.account, agent_id=agent.id)
    return {
        "user_id": user_id,
        "account_id": account_id,
        "group_id": run.resolver.group(agent, owners.group) if owners.group else None,
        "shards": [run.resolver.shard(agent, owners.shard)] if owners.shard else None,
        "kinds": kinds,
    }


def resolve_accounts(
    run: Invocation, user: str | None, account: str | None, *, agent_id: str | None = None
) -> tuple[str, ...] | None:
    """Return the accounts for ``--user`` and ``--account``: all of the user, or one."""
    user_id, account_id = _resolve_user(run, user, account, agent_id=agent_id)
    if not (user_id or account_id):
        return None
    return run.service.host.choose_accounts(user_id, account_id).ids


def _resolve_user(
    run: Invocation, user: str | None, account: str | None, *, agent_id: str | None = None
) -> tuple[str | None, str | None]:
    user_id = run.resolver.user_id(user, agent_id=agent_id) if user else None
    if not account:
        return user_id, None
    return user_id, run.resolver.account_id(account, user_id=user_id, agent_id=agent_id)
