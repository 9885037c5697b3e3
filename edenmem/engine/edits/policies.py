"""Settings of a scope that operators can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edenmem.errors import UsageError
from edenmem.invalid import explain_value
from edenmem.models.memory import Policy
from edenmem.models.scope import ScopeKind
from edenmem.text import clean

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
