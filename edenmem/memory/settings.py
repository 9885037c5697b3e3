"""Plan changes to privacy, policies, and agents and accounts that edenmem adds or removes."""

from __future__ import annotations

import msgspec

from edenmem.errors import ScopeError
from edenmem.memory.facts import fact_in
from edenmem.memory.reflections import reflection_in
from edenmem.memory.state import (
    Effect,
    State,
    Touch,
    conflict,
    missing,
    stale,
    written,
)
from edenmem.models.changes import (
    AddAgent,
    AddUser,
    ChangeSet,
    RemoveAgent,
    RemovePolicy,
    RemoveUser,
    SetAgentToggles,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.host import Agent, User
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind


def closed_reason(scope: Scope, agent: Agent | None, policy: Policy | None) -> str:
    """Return why a scope is closed to new memory; "" if open.

    Args:
        scope: The target of an addition.
        agent: Its agent; None if removed.
        policy: The scope's policy, if any.
    """
    if agent is None:
        return "its agent was removed"
    if policy is not None and not policy.active:
        return "the scope was paused"
    is_off = {
        ScopeKind.USER: not agent.user_memory_enabled,
        ScopeKind.AGENT: not agent.agent_memory_enabled,
        ScopeKind.SHARD: not agent.agent_memory_enabled,
    }
    return "memory of this kind was switched off" if is_off.get(scope.kind) else ""


def set_privacy(change: SetPrivacy, state: State, context: ChangeSet) -> Effect:
    """Plan whether a fact or reflection is private."""
    old: Fact | Reflection | None
    if change.target_type == "fact":
        old = fact_in(state, change.scope, change.target_id)
    elif change.target_type == "reflection":
        old = reflection_in(state, change.scope, change.target_id)
    else:
        detail = f"a {change.target_type} cannot be marked as private"
        return conflict(change, change.target_id, detail)
    if old is None:
        return missing(change, change.target_id)
    new = msgspec.structs.replace(old, private=change.private)
    return written(change, context, old, new, change.scope, Touch(change.scope))


def write_policy(change: WritePolicy, state: State, context: ChangeSet) -> Effect:
    """Plan a scope's policy."""
    try:
        scope = change.policy.home
    except ScopeError as error:
        return conflict(change, change.policy.id, error.message)
    old = state.policies.get(scope)
    version, target = (old.version, old.id) if old else (0, change.policy.id)
    if version != change.expected_version:
        return stale(change, target, version, change.expected_version)
    new = msgspec.structs.replace(
        change.policy, id=target, version=version + 1, updated_at=change.at
    )
    return written(change, context, old, new, scope, Touch(scope))


def remove_policy(change: RemovePolicy, state: State, context: ChangeSet) -> Effect:
    """Plan the removal of a scope's policy."""
    old = state.policies.get(change.scope)
    if old is None:
        return missing(change, "", "the scope has no policy")
    if old.version != change.expected_version:
        return stale(change, old.id, old.version, change.expected_version)
    return written(change, context, old, None, change.scope, Touch(change.scope))


def set_toggles(change: SetAgentToggles, state: State, context: ChangeSet) -> Effect:
    """Plan the toggles of an agent's memory."""
    old = state.agents.get(change.agent_id)
    if old is None:
        return missing(change, change.agent_id, "there is no such agent")
    wanted = {
        "user_memory_enabled": change.user_memory_enabled,
        "agent_memory_enabled": change.agent_memory_enabled,
    }
    toggles = {name: value for name, value in wanted.items() if value is not None}
    new = msgspec.structs.replace(old, **toggles)
    return written(change, context, old, new, None, Touch(Scope.agent(old.id)))


def add_account(change: AddAgent | AddUser, state: State, context: ChangeSet) -> Effect:
    """Plan an agent or account whose ID and username must be free."""
    account: Agent | User
    kind, account = (
        ("agent", change.agent) if isinstance(change, AddAgent) else ("user", change.user)
    )
    if state.ids.get(account.id) or state.names.get((kind, account.username)):
        detail = f"ID or username already in use: {account.username!r}"
        return conflict(change, account.id, detail)
    return written(change, context, None, account)


def remove_account(change: RemoveAgent | RemoveUser, state: State, context: ChangeSet) -> Effect:
    """Plan the removal of an agent or account without references."""
    account: Agent | User | None
    if isinstance(change, RemoveAgent):
        kind, account_id, account = "agent", change.agent_id, state.agents.get(change.agent_id)
    else:
        kind, account_id, account = "user", change.user_id, state.users.get(change.user_id)
    if account is None:
        return missing(change, account_id, f"there is no such {kind}")
    used = state.use(kind, account_id)
    if used:
        return conflict(change, account_id, f"{account.username!r} {used}")
    return written(change, context, account, None)
