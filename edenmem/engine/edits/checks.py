"""Check an operator's change before it goes to the store, for clear error messages.

The store compares versions again when it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edenmem.engine.edits.fields import check_fields
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, KeyTaken, NotFoundError, UsageError
from edenmem.invalid import explain_value
from edenmem.memory.facts import KEY_TAKEN
from edenmem.models.changes import AddAgent, AddUser, ChangeResult, ChangeSet, ChangeStatus
from edenmem.models.host import Agent, User
from edenmem.models.memory import NO_FIELDS, FactFields, Policy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store
from edenmem.text import clean, word_count


def add_account(runtime: Runtime, account: Agent | User) -> bool:
    """Add an agent or user to the host; return False if the ID or username is taken.

    Raises:
        UsageError: the store does not accept the account.
    """
    if reason := runtime.store.host.refusal(account):
        raise UsageError(reason, hint="set the owner: --owner USER")
    change = AddAgent(agent=account) if isinstance(account, Agent) else AddUser(user=account)
    (result,) = runtime.store.changes.apply(
        ChangeSet(actor=runtime.actor, at=runtime.clock(), changes=(change,))
    )
    return result.ok


CONFLICT_HINT = "read the current version and try again"


def text_of(content: str, *, what: str, limit: int, allow_long: bool) -> str:
    """Return the content in its stored form.

    Raises:
        UsageError: the content is empty, or has more than ``limit`` words.
    """
    text = clean(content).strip()
    if not text:
        raise UsageError(f"a {what} must not be empty")
    words = word_count(text)
    if words > limit and not allow_long:
        raise UsageError(
            f"the {what} has {words} words, the limit is {limit}",
            hint="shorten the text, or use --allow-long",
        )
    return text


def find_objection(
    content: str,
    what: str = "fact",
    *,
    takes_orders: bool = False,
    is_statement: bool = True,
) -> str | None:
    """Return why agents and clients may not store this text, or None.

    Secrets and orders to the agent are rejected, as for memories of conversations. Operators may
    store them.

    Args:
        content: The text.
        what: The name of its kind in the answer.
        takes_orders: Whether the scope (a shard) accepts orders.
        is_statement: Whether greetings and placeholders are rejected, too.
    """
    from edenmem.acceptance.rules import object_to  # reads tables

    if not content.strip():
        return None
    why = object_to(content, takes_orders=takes_orders, is_statement=is_statement)
    return f"the {what} {why}" if why else None


def find_secret_in_fields(fields: FactFields) -> str | None:
    """Return why the fields of a fact must not be stored if they have a secret, or None.

    Raises:
        UsageError: a field is invalid, too long, or too large.
    """
    if fields == NO_FIELDS:
        return None
    fields = check_fields(fields)
    # apart: after its name, "key", an ID would look like an access key
    rest = msgspec.structs.replace(fields, key=None, expires_at=None)
    texts = f"{fields.key or ''}\n{msgspec.json.encode(rest).decode()}"
    return find_secret_in(texts, "fact")


def find_secret_in(content: str, what: str) -> str | None:
    """Return why a text must not be stored if it has a secret, or None."""
    from edenmem.acceptance.secrets import find_secret  # reads tables

    kind = find_secret(content)
    return f"the {what} contains {kind}, which must not be remembered" if kind else None


def check_scope_known(store: Store, scope: Scope, *, new_shard: bool = False) -> Policy | None:
    """Check that the agent and the owner exist, and return the policy of the scope, if any.

    Raises:
        NotFoundError: the agent or owner does not exist; the hint has the command to add it.
    """
    check_agent_known(store, scope.agent_id)
    policy = store.memory.policies([scope]).get(scope)
    if scope.user_id is not None and all(
        account.deleted for account in store.host.accounts_of(scope.user_id)
    ):
        raise NotFoundError(
            f"user not found: {scope.user_id}",
            hint=f"edenmem user add NAME --id {scope.user_id}",
        )
    if scope.session_id is not None:
        check_session_known(store, scope.session_id)
    if scope.shard_name is not None and policy is None and not new_shard:
        raise NotFoundError(
            f"the agent has no shard {scope.shard_name!r}",
            hint="create one: edenmem scope policy --agent NAME --shard NAME "
            "--memory-instructions TEXT",
        )
    return policy


def check_agent_known(store: Store, agent_id: str) -> None:
    """Check that an agent exists.

    Raises:
        NotFoundError: the agent does not exist.
    """
    if store.host.agent(agent_id) is None:
        raise NotFoundError(
            f"agent not found: {agent_id}", hint=f"edenmem agent add NAME --id {agent_id}"
        )


def check_session_known(store: Store, session_id: str) -> None:
    """Check that a session exists.

    Raises:
        NotFoundError: the session does not exist.
    """
    if store.host.session(session_id) is None:
        raise NotFoundError(
            f"session not found: {session_id}", hint="add sessions: edenmem import FILE"
        )


def check_open(policy: Policy | None, scope: Scope) -> None:
    """Check that the scope is active.

    Raises:
        UsageError: the scope is paused.
    """
    if policy is not None and not policy.active:
        raise UsageError(
            f"the {scope.kind} scope is paused", hint="resume it: edenmem scope resume"
        )


def check_holds_facts(scope: Scope) -> None:
    """Check that scopes of this kind have facts.

    Raises:
        UsageError: a session scope, which has only reflections and a text.
    """
    if scope.kind is ScopeKind.SESSION:
        raise UsageError(
            "a session scope has no facts",
            hint="add the fact to the user, group, shard or agent, or add a reflection",
        )


def check_version(what: str, stored: int, expected: int | None) -> None:
    """Check that the stored version is the expected one (None: any).

    Raises:
        ConflictError: the versions differ.
    """
    if expected is not None and stored != expected:
        raise ConflictError(
            f"version conflict: the {what} is at version {stored}, not {expected}",
            hint=CONFLICT_HINT,
        )


def check_result(result: ChangeResult, what: str) -> None:
    """Check that the store applied a change.

    Raises:
        ConflictError: another writer changed the target first.
        KeyTaken: another fact of the scope has the key.
        NotFoundError: the target no longer exists.
    """
    if result.status is ChangeStatus.CONFLICT:
        if result.detail.startswith(KEY_TAKEN):
            raise KeyTaken(result.detail, hint="edit that fact, or use another key")
        raise ConflictError(
            result.detail or f"another writer changed the {what} first", hint=CONFLICT_HINT
        )
    if result.status is ChangeStatus.MISSING:
        raise NotFoundError(result.detail or f"the {what} no longer exists")


Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]

_TEXTS = ("memory_instructions", "consolidation_instructions", "fast_model", "slow_model")

#: Types by field. None restores the default of the scope's kind.
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(_TEXTS, str | None),
    "consolidate_at": Count | None,
    "word_limit": Count | None,
    "fact_buffer_max": NotNegative | None,
    "active": bool,
    "private": bool,
    "propagate": bool | None,
    "orders": bool | None,
    "review": Literal["nothing", "doubtful", "everything"] | None,
}

POLICY_FIELDS = tuple(_TYPES)

SHARD_NAME_CHARACTERS = 100


def change_policy(policy: Policy, changes: Mapping[str, object]) -> Policy:
    """Return the policy with these fields changed.

    Numbers and booleans may be text; empty text means None.

    Raises:
        UsageError: a field is unknown, or a value is invalid.
    """
    if not changes:
        raise UsageError("nothing to change", hint=f"fields: {', '.join(POLICY_FIELDS)}")
    return msgspec.structs.replace(
        policy, **{field: _value(policy.scope, field, value) for field, value in changes.items()}
    )


def check_shard_name(name: str) -> None:
    """Check the name of a new shard.

    Raises:
        UsageError: the name is too long, has several lines, control codes, or outer white space.
    """
    if name != clean(name).strip() or "\n" in name or "\t" in name:
        raise UsageError(
            "invalid shard name: control codes, line breaks and outer spaces are not allowed"
        )
    if len(name) > SHARD_NAME_CHARACTERS:
        raise UsageError(f"shard name too long: the limit is {SHARD_NAME_CHARACTERS} characters")


def _value(kind: ScopeKind, field: str, value: object) -> object:
    if field not in _TYPES:
        raise UsageError(
            f"unknown policy field: {field!r}", hint=f"fields: {', '.join(POLICY_FIELDS)}"
        )
    if field == "fact_buffer_max" and kind is ScopeKind.SESSION and value not in (None, ""):
        raise UsageError("a session scope has no facts to limit")
    if field == "orders" and kind is not ScopeKind.SHARD and value not in (None, ""):
        raise UsageError("only shards can accept orders to the agent")
    if isinstance(value, str):
        value = clean(value).strip() or None
    try:
        return msgspec.convert(value, _TYPES[field], strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{explain_value(error, whole=field)}: {value!r:.60}") from None
