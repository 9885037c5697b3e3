"""Check an operator's change before it goes to the store, for clear error messages.

That includes the fields that people and other systems set on facts. The store compares versions
again when it writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edenmem.engine.formation.sharing import keep_proof
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, KeyTaken, NotFoundError, UsageError
from edenmem.invalid import explain_value
from edenmem.memory.facts import KEY_TAKEN
from edenmem.models.changes import (
    EXPIRED,
    AddAgent,
    AddUser,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
)
from edenmem.models.host import Agent, User
from edenmem.models.ids import as_utc
from edenmem.models.memory import NO_FIELDS, Fact, FactFields, Policy
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
    fields: FactFields | None = None,
    *,
    what: str = "fact",
    takes_orders: bool = False,
    is_statement: bool = True,
) -> str | None:
    """Return why agents and clients may not store a text with these fields, or None.

    Secrets and orders to the agent are rejected, as for memories of conversations. Operators may
    store them.

    Args:
        content: The text.
        fields: The fields of a fact.
        what: The name of its kind in the answer.
        takes_orders: Whether the scope (a shard) accepts orders.
        is_statement: Whether greetings and placeholders are rejected, too.

    Raises:
        UsageError: a field is invalid, too long, or too large.
    """
    from edenmem.acceptance.rules import object_to  # reads tables

    is_judged = bool(content.strip())
    if is_judged and (
        why := object_to(content, takes_orders=takes_orders, is_statement=is_statement)
    ):
        return f"the {what} {why}"
    if fields is None or fields == NO_FIELDS:
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
        UsageError: a field is unknown, or a value is invalid; or the policy names a shard that is
            too long, has several lines, control codes, or outer white space.
    """
    if not changes:
        raise UsageError("nothing to change", hint=f"fields: {', '.join(POLICY_FIELDS)}")
    name = policy.shard or ""
    if name != clean(name).strip() or "\n" in name or "\t" in name:
        raise UsageError(
            "invalid shard name: control codes, line breaks and outer spaces are not allowed"
        )
    if len(name) > SHARD_NAME_CHARACTERS:
        raise UsageError(f"shard name too long: the limit is {SHARD_NAME_CHARACTERS} characters")
    return msgspec.structs.replace(
        policy, **{field: _value(policy.scope, field, value) for field, value in changes.items()}
    )


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


#: Maximum numbers of characters, of tags and of named texts.
KEY_LENGTH, TAG_LENGTH, NAME_LENGTH, TEXT_LENGTH = 512, 100, 100, 2000
MOST_TAGS = MOST_TEXTS = 50
#: Maximum size of a value as JSON, and how deep it may be nested.
VALUE_BYTES, VALUE_DEPTH = 16 * 1024, 20
#: The whole numbers that every store keeps.
_WHOLE = range(-(2**63), 2**63)

_BATCH = 500


def check_fields(fields: FactFields) -> FactFields:
    """Return the fields in their stored form.

    Raises:
        UsageError: a field is invalid, too long, or too large.
    """
    tags = tuple(dict.fromkeys(clean(tag).strip() for tag in fields.tags))
    if len(tags) > MOST_TAGS or len(fields.metadata) > MOST_TEXTS:
        raise UsageError(f"a fact has at most {MOST_TAGS} tags and {MOST_TEXTS} metadata fields")
    for what, text, length in (
        *(("key", each, KEY_LENGTH) for each in (fields.key,) if each is not None),
        *(("tag", tag, TAG_LENGTH) for tag in tags),
        *(("metadata name", name, NAME_LENGTH) for name in fields.metadata),
    ):
        if not text or text != clean(text).strip() or "\n" in text:
            raise UsageError(f"{what} is empty, or has line breaks or outer spaces: {text!r:.60}")
        if len(text) > length:
            raise UsageError(f"{what} is longer than {length} characters: {text!r:.60}")
    if any(len(text) > TEXT_LENGTH for text in fields.metadata.values()):
        raise UsageError(f"metadata text is longer than {TEXT_LENGTH:,} characters")
    try:
        expires_at = None if fields.expires_at is None else as_utc(fields.expires_at)
    except ValueError as error:
        raise UsageError(f"the time of expiry is out of range: {fields.expires_at}") from error
    return msgspec.structs.replace(
        fields,
        tags=tags,
        metadata={name: clean(text) for name, text in fields.metadata.items()},
        expires_at=expires_at,
        value=None if fields.value is None else _check_value(fields.value),
    )


def _check_value(value: dict[str, Any]) -> dict[str, Any]:
    try:
        given = msgspec.to_builtins(value, str_keys=True)
        raw = msgspec.json.encode(given)
        decoded = msgspec.json.decode(raw, type=dict[str, Any])
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError("value is not a JSON object") from error
    if len(raw) > VALUE_BYTES:
        raise UsageError(f"value has {len(raw):,} bytes as JSON, the limit is {VALUE_BYTES:,}")
    if not _is_plain(given, VALUE_DEPTH):  # JSON has null for an infinite number
        raise UsageError(
            f"value is nested more than {VALUE_DEPTH} deep, or has a whole number beyond 64 bits, "
            "a number that is not finite, or a name with a null character"
        )
    return decoded


def _is_plain(value: object, depth: int) -> bool:
    match value:
        case dict():
            named = not any("\0" in name for name in value)
            return depth > 0 and named and all(_is_plain(one, depth - 1) for one in value.values())
        case list() | tuple():
            return depth > 0 and all(_is_plain(each, depth - 1) for each in value)
        case float():
            return isfinite(value)
    return not isinstance(value, int) or value in _WHOLE


def expire(runtime: Runtime, *, agent_ids: Sequence[str] | None = None) -> int:
    """Remove the facts that have expired, and return their number. Blocks.

    All removals are of one run, which 'undo --run' takes back; the facts do not expire then.

    Args:
        runtime: The store, the clock, and the actor with its run.
        agent_ids: Only facts of these agents.

    Raises:
        StoreError: the store could not be written.
    """
    store, now, removed = runtime.store, runtime.clock(), 0
    while True:
        facts = store.memory.expired_facts(now, agent_ids=agent_ids, limit=_BATCH)
        gone = _remove(runtime, facts, now) if facts else 0
        removed += gone
        if not gone:  # the rest was changed by others in the meantime
            return removed


def _remove(runtime: Runtime, facts: Sequence[Fact], now: datetime) -> int:
    for fact in facts:
        keep_proof(runtime.store, fact, now)
    changes = tuple(RemoveFact.of(fact, now, EXPIRED) for fact in facts)
    applied = runtime.store.changes.apply(ChangeSet(actor=runtime.actor, at=now, changes=changes))
    return sum(result.ok for result in applied)
