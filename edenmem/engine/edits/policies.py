"""Which settings of a scope an operator may change, and to what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edenmem.errors import UsageError
from edenmem.models.memory import Policy
from edenmem.models.scope import ScopeKind
from edenmem.text import clean

Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]

_TEXTS = ("memory_instructions", "consolidation_instructions", "fast_model", "slow_model")

#: Field → what it may hold. None gives a field back to the default of the scope's kind.
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

#: The longest name of a shard.
SHARD_NAME_CHARACTERS = 100


def change_policy(policy: Policy, changes: Mapping[str, object]) -> Policy:
    """The policy with these fields changed. Numbers and truth values may be given as text, and
    an empty text is None.

    Raises:
        UsageError: a field that there is not, or a value that it may not have.
    """
    if not changes:
        raise UsageError("nothing to change", hint=f"fields are {', '.join(POLICY_FIELDS)}")
    return msgspec.structs.replace(
        policy, **{field: _value(policy.scope, field, value) for field, value in changes.items()}
    )


def check_shard_name(name: str) -> None:
    """That a new shard may be called so: one line, no control codes, not too long.

    Raises:
        UsageError: it may not.
    """
    if name != clean(name).strip() or "\n" in name or "\t" in name:
        raise UsageError(
            "a shard's name is one line without control codes, and no space at its ends"
        )
    if len(name) > SHARD_NAME_CHARACTERS:
        raise UsageError(f"a shard's name has at most {SHARD_NAME_CHARACTERS} characters")


def _value(kind: ScopeKind, field: str, value: object) -> object:
    if field not in _TYPES:
        raise UsageError(
            f"a policy has no field {field!r}", hint=f"fields are {', '.join(POLICY_FIELDS)}"
        )
    if field == "fact_buffer_max" and kind is ScopeKind.SESSION and value not in (None, ""):
        raise UsageError("a session scope has no facts to limit")
    if field == "orders" and kind is not ScopeKind.SHARD and value not in (None, ""):
        raise UsageError("only a shard can take orders to the agent")
    if isinstance(value, str):
        value = clean(value).strip() or None
    try:
        return msgspec.convert(value, _TYPES[field], strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{field}: {value!r} will not do: {error}") from None
