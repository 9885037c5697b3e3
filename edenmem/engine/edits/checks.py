"""What is checked before an operator's change is handed to the store.

These make good messages; that the change fits what is stored at that moment is decided by the
store, which compares versions as it writes.
"""

from __future__ import annotations

from edenmem.acceptance.rules import object_to
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, NotFoundError, UsageError
from edenmem.models.changes import AddAgent, AddUser, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.host import Agent, User
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store
from edenmem.text import clean, word_count


def add_account(runtime: Runtime, account: Agent | User) -> bool:
    """Add an agent or a person to the host; False if the id or the username is taken.

    Raises:
        UsageError: the store cannot have such an account.
    """
    if reason := runtime.store.host.refusal(account):
        raise UsageError(reason, hint="name the user who owns it: --owner USER")
    change = AddAgent(agent=account) if isinstance(account, Agent) else AddUser(user=account)
    (result,) = runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=(change,))
    )
    return result.ok


#: What to do after somebody else was first.
CONFLICT_HINT = "look at what it says now and decide again"


def text_of(content: str, *, what: str, limit: int, allow_long: bool) -> str:
    """The content as it is stored.

    Raises:
        UsageError: nothing is left of it, or it has more words than ``limit``.
    """
    text = clean(content).strip()
    if not text:
        raise UsageError(f"a {what} must not be empty")
    words = word_count(text)
    if words > limit and not allow_long:
        raise UsageError(
            f"the {what} has {words} words, the limit is {limit}",
            hint="shorten it, or allow it to be long (--allow-long)",
        )
    return text


def find_objection(content: str, what: str = "fact") -> str | None:
    """Return why a fact must not be stored for agents and clients: what no conversation may bring
    into memory either, such as a secret or an order to the agent. An operator may store it."""
    why = object_to(content) if content.strip() else None
    return f"the {what} {why}" if why else None


def check_scope_known(store: Store, scope: Scope, *, new_shard: bool = False) -> Policy | None:
    """That the host knows the agent and the owner; the scope's policy, if it has one.

    Raises:
        NotFoundError: it does not; the hint is the command that adds what is missing.
    """
    check_agent_known(store, scope.agent_id)
    policy = store.memory.policies([scope]).get(scope)
    if scope.user_id is not None and not _has_account(store, scope.user_id):
        raise NotFoundError(
            f"there is no user {scope.user_id}",
            hint=f"edenmem user add NAME --id {scope.user_id}",
        )
    if scope.session_id is not None:
        check_session_known(store, scope.session_id)
    if scope.shard_name is not None and policy is None and not new_shard:
        raise NotFoundError(
            f"the agent has no shard {scope.shard_name!r}",
            hint="'edenmem scope policy --agent NAME --shard NAME "
            "--memory-instructions TEXT' makes one",
        )
    return policy


def check_agent_known(store: Store, agent_id: str) -> None:
    """That there is such an agent.

    Raises:
        NotFoundError: there is not.
    """
    if store.host.agent(agent_id) is None:
        raise NotFoundError(
            f"there is no agent {agent_id}", hint=f"edenmem agent add NAME --id {agent_id}"
        )


def check_session_known(store: Store, session_id: str) -> None:
    """That there is such a session.

    Raises:
        NotFoundError: there is not.
    """
    if store.host.session(session_id) is None:
        raise NotFoundError(
            f"there is no session {session_id}", hint="edenmem session import FILE adds sessions"
        )


def _has_account(store: Store, user_id: str) -> bool:
    """Whether there is such an account, or one that is linked to this id."""
    return any(not account.deleted for account in store.host.accounts_of(user_id))


def check_open(policy: Policy | None, scope: Scope) -> None:
    """That the scope takes something new.

    Raises:
        UsageError: it is paused.
    """
    if policy is not None and not policy.active:
        raise UsageError(
            f"this {scope.kind} scope is paused and takes nothing new",
            hint="'edenmem scope resume' makes it active again",
        )


def check_holds_facts(scope: Scope) -> None:
    """That the scope is of a kind that has facts.

    Raises:
        UsageError: it is a session's, which has reflections and a text only.
    """
    if scope.kind is ScopeKind.SESSION:
        raise UsageError(
            "a session scope has no facts",
            hint="add it to the user, group, shard or agent, or add a reflection",
        )


def check_version(what: str, stored: int, expected: int | None) -> None:
    """That the version is the one that the change was decided on; None leaves it open.

    Raises:
        ConflictError: it is another one by now.
    """
    if expected is not None and stored != expected:
        raise ConflictError(
            f"the {what} is at version {stored} by now, not {expected}", hint=CONFLICT_HINT
        )


def check_result(result: ChangeResult, what: str) -> None:
    """That the store did what was asked.

    Raises:
        ConflictError: somebody else was first.
        NotFoundError: the target is gone.
    """
    if result.status is ChangeStatus.CONFLICT:
        raise ConflictError(
            result.detail or f"the {what} was changed meanwhile", hint=CONFLICT_HINT
        )
    if result.status is ChangeStatus.MISSING:
        raise NotFoundError(result.detail or f"the {what} is gone")
