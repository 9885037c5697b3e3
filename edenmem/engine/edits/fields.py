"""The fields that people and other systems set on facts: their limits, and expiry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from typing import Any

import msgspec

from edenmem.engine.formation.sharing import keep_proof
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import UsageError
from edenmem.models.changes import EXPIRED, ChangeSet, RemoveFact
from edenmem.models.ids import as_utc
from edenmem.models.memory import Fact, FactFields
from edenmem.text import clean

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
