"""List agents and scopes, and summarize their contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.ids import as_utc
from edenmem.models.memory import ScopeSummary
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import EVERYTHING, Filter, object_id, object_ids
from edenmem.text import word_count


def agents_with_memory(db: Connection) -> list[str]:
    """Return the IDs of the agents with a fact, reflection, text or policy."""
    ids: set[str] = set()
    for collection in (db.facts, db.reflections, db.policies):
        ids.update(str(value) for value in collection.distinct("agent_id") if value)
    for kind in ScopeKind:
        values = db.consolidated.distinct("agent_id", {"scope": kind.value})
        ids.update(str(value) for value in values if value)
    return sorted(ids)


def summarize_scopes(
    db: Connection,
    agent_id: str | None,
    kinds: Sequence[ScopeKind],
    user_ids: Sequence[str] | None,
) -> dict[Scope, ScopeSummary]:
    """Summarize scopes, optionally only those of an agent, of these kinds or of these accounts."""
    found: dict[Scope, ScopeSummary] = {}
    match: Filter = dict(EVERYTHING) if agent_id is None else {"agent_id": object_id(agent_id)}
    if kinds:
        match["scope"] = {"$in": [kind.value for kind in kinds]}
    if user_ids is not None:
        match["user_id"] = {"$in": object_ids(user_ids)}
    for collection, is_fact in ((db.facts, True), (db.reflections, False)):
        for row in _count_owners(collection, match):
            if is_fact and row["scope"] == ScopeKind.SESSION:
                row["session_id"] = row.get("group_id")  # see `fact_fields`
            if scope := scope_of(row):
                _add(found, scope, at=row["at"], **({"facts": row["count"]} if is_fact else {}))
    # The index of texts begins with the kind of scope.
    of_texts = [match] if agent_id is None else [{**match, "scope": k} for k in kinds or ScopeKind]
    texts = db.find_all(db.consolidated, of_texts)
    for text in codec.read_owned(codec.consolidation_from, texts):
        _add(
            found,
            text.home,
            pending=len(text.unabsorbed_ids),
            version=text.version,
            words=word_count(text.consolidated_content),
            text_limit=text.word_limit,
            last_consolidated_at=text.last_consolidated_at,
            at=text.updated_at,
        )
    for policy in codec.read_owned(codec.policy_from, db.policies.find(match)):
        _add(
            found,
            policy.home,
            active=policy.active,
            consolidate_at=policy.consolidate_at,
            word_limit=policy.word_limit,
            at=policy.updated_at,
        )
    return found


#: The expression for the scope of a document; ``session_id`` only if the session is the owner.
OWNER: Document = {
    **{name: f"${name}" for name in ("agent_id", "scope", "user_id", "group_id", "shard")},
    "session_id": {"$cond": [{"$eq": ["$scope", "session"]}, "$session_id", None]},
}


def _count_owners(collection: Collection, match: Filter) -> Iterator[Document]:
    """Yield a row per scope, with its fields, a count and the latest time."""
    group = {
        "_id": OWNER,
        "count": {"$sum": 1},
        "formed": {"$max": "$formed_at"},
        "updated": {"$max": "$updated_at"},
    }
    for row in collection.aggregate([{"$match": match}, {"$group": group}]):
        times = [as_utc(t) for t in (row["formed"], row["updated"]) if isinstance(t, datetime)]
        yield {**row["_id"], "count": row["count"], "at": max(times, default=None)}


def _add(
    found: dict[Scope, ScopeSummary], scope: Scope, *, at: datetime | None, **values: Any
) -> None:
    summary = found.get(scope) or ScopeSummary(scope=scope)
    times = [time for time in (summary.updated_at, at) if time is not None]
    found[scope] = msgspec.structs.replace(summary, updated_at=max(times, default=None), **values)


def scope_of(fields: Document) -> Scope | None:
    """Return the scope of a document; None without a kind and the owner that it needs."""
    try:
        return Scope.from_fields(
            codec.kind_of(fields),
            codec.text_id(fields.get("agent_id")) or "",
            user_id=codec.text_id(fields.get("user_id")),
            session_id=codec.text_id(fields.get("session_id")),
            group_id=codec.text_id(fields.get("group_id")),
            shard=codec.text_id(fields.get("shard")),
        )
    except (ScopeError, ValueError):
        return None
